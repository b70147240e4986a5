//! The extension module `allranks._allranks`: bindings only, one file per concept.

use pyo3::prelude::*;

mod baton;
mod cli;
mod clock;
mod fake;
mod locks;
mod member;
#[cfg(feature = "mutants")]
mod mutants;
mod outcome;
mod site;
mod store;
mod swap;
mod tensor;
mod ticket;
mod world;

#[pymodule]
fn _allranks(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<baton::Baton>()?;
    m.add("RankAborted", m.py().get_type::<baton::RankAborted>())?;
    m.add_function(wrap_pyfunction!(baton::current_rank, m)?)?;
    m.add_function(wrap_pyfunction!(baton::current_task, m)?)?;
    m.add_function(wrap_pyfunction!(baton::forget_current_task, m)?)?;
    m.add_class::<clock::JumpingClock>()?;
    m.add_class::<fake::FakeWorld>()?;
    m.add_class::<fake::FakeGroup>()?;
    m.add_class::<fake::FakeMethod>()?;
    m.add_function(wrap_pyfunction!(fake::clear_memory, m)?)?;
    m.add_function(wrap_pyfunction!(fake::fill_rules, m)?)?;
    m.add_class::<locks::PyLock>()?;
    m.add_class::<locks::PyRLock>()?;
    m.add_class::<store::StoreCore>()?;
    m.add_class::<store::StoreHub>()?;
    m.add_class::<swap::Swapper>()?;
    m.add_function(wrap_pyfunction!(swap::set_touch_handler, m)?)?;
    m.add_function(wrap_pyfunction!(swap::touch, m)?)?;
    m.add_function(wrap_pyfunction!(site::set_code_paths, m)?)?;
    m.add_function(wrap_pyfunction!(site::user_site, m)?)?;
    m.add_class::<world::PyWorld>()?;
    m.add_class::<member::Member>()?;
    m.add_function(wrap_pyfunction!(outcome::conclude, m)?)?;
    m.add_function(wrap_pyfunction!(outcome::conclude_one_rank, m)?)?;
    m.add_function(wrap_pyfunction!(outcome::findings_json, m)?)?;
    m.add_function(wrap_pyfunction!(outcome::findings_text, m)?)?;
    m.add_class::<ticket::PyTicket>()?;
    m.add("NeedsStaging", m.py().get_type::<member::NeedsStaging>())?;
    m.add_function(wrap_pyfunction!(member::reduce_op_of, m)?)?;
    m.add_function(wrap_pyfunction!(member::dtype_name, m)?)?;
    m.add_class::<cli::PyRunPlan>()?;
    m.add_function(wrap_pyfunction!(cli::parse, m)?)?;
    m.add_function(wrap_pyfunction!(cli::launch_refusal, m)?)?;
    m.add_function(wrap_pyfunction!(cli::print_error, m)?)?;
    Ok(())
}
