//! What is private to a rank, and how it changes places when another rank's turn comes.
//!
//! A *slot* is one piece of process-wide state of which each rank has its own value. Three kinds: an entry of a dict
//! (a module's attribute, a class's where it is a dict, `sys.modules`), an attribute of any object, and a pair of
//! functions that read and write. Slots are few, and a slot exists only once something made it necessary, so a
//! hand-over costs a fixed small time; a slot whose value is the same object for both ranks costs one look-up.

use std::sync::Mutex;

use pyo3::exceptions::{PyAttributeError, PyIndexError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

enum Place {
    Entry { dict: Py<PyDict>, key: Py<PyAny> },
    Attribute { object: Py<PyAny>, name: Py<PyString> },
    Call { read: Py<PyAny>, write: Py<PyAny> },
}

struct Slot {
    place: Place,
    /// One value a rank; None where the rank has no such entry or attribute.
    values: Vec<Option<Py<PyAny>>>,
}

impl Place {
    fn read(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        Ok(match self {
            Place::Entry { dict, key } => dict.bind(py).get_item(key)?.map(Bound::unbind),
            Place::Attribute { object, name } => own_attribute(object.bind(py), name.bind(py))?.map(Bound::unbind),
            Place::Call { read, .. } => Some(read.call0(py)?),
        })
    }

    fn write(&self, py: Python<'_>, value: Option<&Py<PyAny>>) -> PyResult<()> {
        match (self, value) {
            (Place::Entry { dict, key }, Some(value)) => dict.bind(py).set_item(key, value),
            (Place::Entry { dict, key }, None) => match dict.bind(py).del_item(key) {
                Err(e) if !e.is_instance_of::<pyo3::exceptions::PyKeyError>(py) => Err(e),
                _ => Ok(()),
            },
            (Place::Attribute { object, name }, Some(value)) => object.bind(py).setattr(name, value),
            (Place::Attribute { object, name }, None) => match object.bind(py).delattr(name) {
                Err(e) if !e.is_instance_of::<PyAttributeError>(py) => Err(e),
                _ => Ok(()),
            },
            (Place::Call { write, .. }, Some(value)) => write.call1(py, (value,)).map(drop),
            (Place::Call { .. }, None) => Ok(()),
        }
    }
}

/// The attribute as stored on the object itself, not bound and not inherited: what `setattr` would replace.
fn own_attribute<'py>(object: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    match object.getattr(pyo3::intern!(object.py(), "__dict__")) {
        Ok(dict) => match dict.get_item(name) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Ok(None),
        },
        Err(_) => Ok(Some(object.getattr(name)?)),
    }
}

/// The slots of one run.
#[pyclass(frozen, module = "allranks._allranks")]
pub(crate) struct Swapper {
    world_size: usize,
    slots: Mutex<Vec<Slot>>,
}

impl Swapper {
    fn add(&self, py: Python<'_>, place: Place, initial: Option<Py<PyAny>>) -> usize {
        let values = (0..self.world_size).map(|_| initial.as_ref().map(|v| v.clone_ref(py))).collect();
        let mut slots = self.slots.lock().expect("no swap panics");
        slots.push(Slot { place, values });
        slots.len() - 1
    }

    /// Takes `out`'s values from their places and puts `into`'s there. `None` is the state outside all ranks, which is
    /// not kept.
    ///
    /// # Errors
    /// Whatever a reader, writer or `setattr` raises.
    pub fn swap_ranks(&self, py: Python<'_>, out: Option<usize>, into: Option<usize>) -> PyResult<()> {
        // A reader or writer runs Python code, which may add a slot: the lock is not held over calls.
        let mut at = 0;
        loop {
            let mut slots = self.slots.lock().expect("no swap panics");
            let Some(slot) = slots.get_mut(at) else { return Ok(()) };
            at += 1;
            if let Place::Call { read, write } = &slot.place {
                let (read, write) = (read.clone_ref(py), write.clone_ref(py));
                let value = into.and_then(|r| slot.values[r].as_ref().map(|v| v.clone_ref(py)));
                drop(slots);
                if let Some(out) = out {
                    let old = read.call0(py)?;
                    self.slots.lock().expect("no swap panics")[at - 1].values[out] = Some(old);
                }
                if let Some(value) = value {
                    write.call1(py, (value,))?;
                }
                continue;
            }
            let Slot { place, values } = slot;
            let old = place.read(py)?;
            let new = into.and_then(|r| values[r].as_ref());
            let same = match (&old, new) {
                (Some(a), Some(b)) => a.is(b),
                (None, None) => true,
                _ => false,
            };
            if !same {
                place.write(py, new)?;
            }
            if let Some(out) = out {
                let dropped = std::mem::replace(&mut values[out], old);
                drop(slots); // The old value's destructor may run Python code.
                drop(dropped);
            }
        }
    }
}

#[pymethods]
impl Swapper {
    #[new]
    fn new(world_size: usize) -> Self {
        Self { world_size, slots: Mutex::default() }
    }

    /// An entry of a dict. Every rank starts with the value that is there now (or with none); returns the slot.
    fn add_entry(&self, py: Python<'_>, dict: Bound<'_, PyDict>, key: Bound<'_, PyAny>) -> PyResult<usize> {
        let place = Place::Entry { dict: dict.unbind(), key: key.unbind() };
        let initial = place.read(py)?;
        Ok(self.add(py, place, initial))
    }

    /// An attribute of an object: as stored on it, not inherited. Starts like `add_entry`.
    fn add_attribute(&self, py: Python<'_>, object: Bound<'_, PyAny>, name: Bound<'_, PyString>) -> PyResult<usize> {
        let place = Place::Attribute { object: object.unbind(), name: name.unbind() };
        let initial = place.read(py)?;
        Ok(self.add(py, place, initial))
    }

    /// State behind a pair of functions: `read() -> value`, `write(value)`. Every rank starts with what `read` gives.
    fn add_call(&self, py: Python<'_>, read: Py<PyAny>, write: Py<PyAny>) -> PyResult<usize> {
        let place = Place::Call { read, write };
        let initial = place.read(py)?;
        Ok(self.add(py, place, initial))
    }

    /// Sets the value that `rank` finds in place at its next turn; not for the rank that runs now.
    fn set_value(&self, slot: usize, rank: usize, value: Option<Py<PyAny>>) -> PyResult<()> {
        let mut slots = self.slots.lock().expect("no swap panics");
        let cell = slots
            .get_mut(slot)
            .and_then(|s| s.values.get_mut(rank))
            .ok_or_else(|| PyIndexError::new_err("no such slot or rank"))?;
        *cell = value;
        Ok(())
    }

    /// The kept value of a rank that is not running now.
    fn value(&self, py: Python<'_>, slot: usize, rank: usize) -> PyResult<Option<Py<PyAny>>> {
        let slots = self.slots.lock().expect("no swap panics");
        let value = slots.get(slot).and_then(|s| s.values.get(rank));
        value.map(|v| v.as_ref().map(|v| v.clone_ref(py))).ok_or_else(|| PyIndexError::new_err("no such slot or rank"))
    }

    /// How many slots there are: the cost of a hand-over grows with it.
    fn __len__(&self) -> usize {
        self.slots.lock().expect("no swap panics").len()
    }

    /// Swaps by hand: for tests, and to put a state in place outside all ranks.
    #[pyo3(signature = (out, into))]
    fn swap(&self, py: Python<'_>, out: Option<usize>, into: Option<usize>) -> PyResult<()> {
        self.swap_ranks(py, out, into)
    }
}
