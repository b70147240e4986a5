//! Where in the user's program an operation comes from.
//!
//! The answer is the innermost frame whose file belongs neither to torch, allranks nor the standard library; frames of
//! other installed packages count only if there is no frame of the user's own. What kind a code object is is
//! remembered, so a look-up costs one dict-free step a frame.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, RwLock};

use allranks_core::CallSite;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Hidden,
    Package,
    User,
}

struct Code {
    whose: Whose,
    file: Arc<str>,
    function: Arc<str>,
}

#[derive(Default)]
struct Paths {
    hidden: Vec<String>,
    standard: Vec<String>,
    packages: Vec<String>,
}

static PATHS: RwLock<Paths> = RwLock::new(Paths { hidden: Vec::new(), standard: Vec::new(), packages: Vec::new() });
type Codes = HashMap<usize, (Py<PyAny>, Code)>;

/// By address of the code object, which is kept alive here: an address is never used twice.
static CODES: Mutex<Option<Codes>> = Mutex::new(None);

/// Tells where code that is not the user's lies: prefixes of paths of torch and allranks, of the standard library, and of
/// installed packages.
#[pyfunction]
pub(crate) fn set_code_paths(hidden: Vec<String>, standard: Vec<String>, packages: Vec<String>) {
    *PATHS.write().expect("never poisoned") = Paths { hidden, standard, packages };
    *CODES.lock().expect("never poisoned") = None;
}

fn classify(file: &str) -> Whose {
    if file.starts_with('<')
        && file.ends_with('>')
        && !file.starts_with("<ipython")
        && file != "<stdin>"
        && file != "<string>"
    {
        return Whose::Hidden;
    }
    let paths = PATHS.read().expect("never poisoned");
    let under = |list: &[String]| list.iter().any(|p| file.starts_with(p.as_str()));
    // Packages usually lie below the standard library's folder, so they are looked for first.
    if under(&paths.hidden) {
        Whose::Hidden
    } else if under(&paths.packages) {
        Whose::Package
    } else if under(&paths.standard) {
        Whose::Hidden
    } else {
        Whose::User
    }
}

fn code_of(py: Python<'_>, code: &Bound<'_, PyAny>) -> PyResult<Code> {
    let file: String = code.getattr(intern!(py, "co_filename"))?.extract()?;
    let function: String = code.getattr(intern!(py, "co_name"))?.extract()?;
    Ok(Code { whose: classify(&file), file: file.into(), function: function.into() })
}

fn line_of(py: Python<'_>, frame: &Bound<'_, PyAny>) -> u32 {
    frame.getattr(intern!(py, "f_lineno")).and_then(|l| l.extract()).unwrap_or(0)
}

/// The user's place in the stack that begins (innermost) with `frame`.
pub(crate) fn site_of(py: Python<'_>, frame: Bound<'_, PyAny>) -> PyResult<Option<CallSite>> {
    // No Python code runs while the table is held: attributes of frames and code objects are plain reads.
    let mut codes = CODES.lock().expect("never poisoned");
    let codes = codes.get_or_insert_with(HashMap::new);
    let mut in_package: Option<CallSite> = None;
    let mut frame = frame;
    loop {
        let object = frame.getattr(intern!(py, "f_code"))?;
        let known = match codes.entry(object.as_ptr() as usize) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let code = code_of(py, &object)?;
                place.insert((object.unbind(), code))
            }
        };
        if known.1.whose != Whose::Hidden && (known.1.whose == Whose::User || in_package.is_none()) {
            let code = &known.1;
            let line = line_of(py, &frame);
            let site = CallSite { file: code.file.clone(), line, function: code.function.clone() };
            if code.whose == Whose::User {
                return Ok(Some(site));
            }
            in_package = Some(site);
        }
        let back = frame.getattr(intern!(py, "f_back"))?;
        if back.is_none() {
            return Ok(in_package);
        }
        frame = back;
    }
}

/// The user's place on the current thread.
pub(crate) fn here(py: Python<'_>) -> PyResult<Option<CallSite>> {
    // SAFETY: the interpreter is held; the answer is a borrowed reference or null (no Python frame).
    let frame = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast::<ffi::PyObject>()) };
    match frame {
        Some(frame) => site_of(py, frame),
        None => Ok(None),
    }
}

/// (file, line, function) of the user's place in the stack that begins with `frame`, or None.
#[pyfunction]
pub(crate) fn user_site(py: Python<'_>, frame: Bound<'_, PyAny>) -> PyResult<Option<(String, u32, String)>> {
    Ok(site_of(py, frame)?.map(|s| (s.file.to_string(), s.line, s.function.to_string())))
}
