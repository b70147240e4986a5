//! What is private to a rank, and how it changes places when another rank's turn comes.
//!
//! A *slot* is one piece of process-wide state of which each rank has its own value. Five kinds:
//!
//! | kind | for | cost of a hand-over |
//! |---|---|---|
//! | entry of a dict | a module's attribute, an entry of `sys.modules` | two look-ups, a write where the values differ |
//! | attribute of an object | class attributes, anything with a setter | the same through `getattr` and `setattr` |
//! | all attributes of an object | a logger, print options: the whole `__dict__` changes | as one attribute |
//! | a pair of functions | state in C++ | what the functions cost |
//! | bytes in memory | generators of random numbers in C | two copies |
//!
//! Slots are few, and a slot exists only once something made it necessary, so a hand-over costs a fixed small time.
//! Each slot also keeps the value from before the run, for `restore`.

use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyAttributeError, PyIndexError, PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyModule, PyString, PyType};

enum Place {
    Entry { dict: Py<PyDict>, key: Py<PyAny> },
    Attribute { object: Py<PyAny>, name: Py<PyString> },
    Attributes { object: Py<PyAny> },
    Call { read: Py<PyAny>, write: Py<PyAny> },
    Memory { ranges: Vec<(usize, usize)>, _owner: Py<PyAny> },
}

/// A kept value: None where a rank has no such entry or attribute.
enum Value {
    Object(Option<Py<PyAny>>),
    Bytes(Vec<u8>),
}

struct Slot {
    place: Arc<Place>,
    values: Vec<Value>,
    before: Value,
}

impl Value {
    fn copy(&self, py: Python<'_>) -> Self {
        match self {
            Value::Object(value) => Value::Object(value.as_ref().map(|v| v.clone_ref(py))),
            Value::Bytes(bytes) => Value::Bytes(bytes.clone()),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Object(Some(a)), Value::Object(Some(b))) => a.is(b),
            (Value::Object(None), Value::Object(None)) => true,
            _ => false,
        }
    }
}

impl Place {
    fn read(&self, py: Python<'_>) -> PyResult<Value> {
        let object = match self {
            Place::Entry { dict, key } => dict.bind(py).get_item(key)?.map(Bound::unbind),
            Place::Attribute { object, name } => own_attribute(object.bind(py), name.bind(py))?.map(Bound::unbind),
            Place::Attributes { object } => Some(object.getattr(py, pyo3::intern!(py, "__dict__"))?),
            Place::Call { read, .. } => Some(read.call0(py)?),
            Place::Memory { ranges, .. } => {
                let mut bytes = Vec::new();
                copy_out(ranges, &mut bytes);
                return Ok(Value::Bytes(bytes));
            }
        };
        Ok(Value::Object(object))
    }

    fn write(&self, py: Python<'_>, value: &Value) -> PyResult<()> {
        let value = match (self, value) {
            (Place::Memory { ranges, .. }, Value::Bytes(bytes)) => {
                copy_in(ranges, bytes);
                return Ok(());
            }
            (_, Value::Object(value)) => value.as_ref(),
            (_, Value::Bytes(_)) => unreachable!("only memory keeps bytes"),
        };
        match (self, value) {
            (Place::Entry { dict, key }, Some(value)) => dict.bind(py).set_item(key, value),
            (Place::Entry { dict, key }, None) => match dict.bind(py).del_item(key) {
                Err(e) if !e.is_instance_of::<PyKeyError>(py) => Err(e),
                _ => Ok(()),
            },
            (Place::Attribute { object, name }, Some(value)) => object.bind(py).setattr(name, value),
            (Place::Attribute { object, name }, None) => match object.bind(py).delattr(name) {
                Err(e) if !e.is_instance_of::<PyAttributeError>(py) => Err(e),
                _ => Ok(()),
            },
            (Place::Attributes { object }, Some(value)) => {
                object.bind(py).setattr(pyo3::intern!(py, "__dict__"), value)
            }
            (Place::Call { write, .. }, Some(value)) => write.call1(py, (value,)).map(drop),
            (Place::Attributes { .. } | Place::Call { .. } | Place::Memory { .. }, _) => Ok(()),
        }
    }
}

fn copy_out(ranges: &[(usize, usize)], bytes: &mut Vec<u8>) {
    for &(address, length) in ranges {
        // SAFETY: whoever added the slot promised that the range is readable while its owner lives, and the slot keeps
        // the owner; nobody else writes, because only the thread with the baton runs.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(address as *const u8, length) });
    }
}

fn copy_in(ranges: &[(usize, usize)], bytes: &[u8]) {
    let mut rest = bytes;
    for &(address, length) in ranges {
        let (now, later) = rest.split_at(length);
        rest = later;
        // SAFETY: as in `copy_out`, and the range is writable.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), address as *mut u8, length) };
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
    fn add(&self, py: Python<'_>, place: Place) -> PyResult<usize> {
        let before = place.read(py)?;
        let values = (0..self.world_size).map(|_| before.copy(py)).collect();
        let mut slots = self.slots.lock().expect("no swap panics");
        slots.push(Slot { place: Arc::new(place), values, before });
        Ok(slots.len() - 1)
    }

    /// Takes `out`'s values from their places and puts `into`'s there. `None` is the state outside all ranks, which is
    /// not kept.
    ///
    /// # Errors
    /// Whatever a reader, writer or `setattr` raises.
    pub fn swap_ranks(&self, py: Python<'_>, out: Option<usize>, into: Option<usize>) -> PyResult<()> {
        let mut dropped = Vec::new();
        let mut at = 0;
        loop {
            at = self.swap_plain(py, at, out, into, &mut dropped)?;
            // Any other step may run Python code (a setter, a destructor, the garbage collector), which may add a slot:
            // the lock is not held over one.
            let (place, new) = {
                let slots = self.slots.lock().expect("no swap panics");
                let Some(slot) = slots.get(at) else { return Ok(()) };
                (slot.place.clone(), into.map(|r| slot.values[r].copy(py)))
            };
            let old = place.read(py)?;
            if let Some(new) = new
                && !old.is(&new)
            {
                place.write(py, &new)?;
            }
            if let Some(out) = out {
                self.keep(at, out, old);
            }
            at += 1;
        }
    }

    /// Swaps the slots from `at` on as long as that runs no Python code, under one lock, and returns the first that
    /// may. Values that nobody needs any more go to `dropped`, whose end may run code.
    fn swap_plain(
        &self,
        py: Python<'_>,
        mut at: usize,
        out: Option<usize>,
        into: Option<usize>,
        dropped: &mut Vec<Py<PyAny>>,
    ) -> PyResult<usize> {
        let mut slots = self.slots.lock().expect("no swap panics");
        while let Some(Slot { place, values, .. }) = slots.get_mut(at) {
            match &**place {
                Place::Entry { dict, key } if key.bind(py).is_exact_instance_of::<PyString>() => {
                    let old = dict.bind(py).get_item(key)?;
                    let new = into.and_then(|r| match &mut values[r] {
                        Value::Object(value) => Some(value),
                        Value::Bytes(_) => None,
                    });
                    if let Some(new) = new {
                        match (&old, &*new) {
                            (Some(a), Some(b)) if a.is(b) => {}
                            (None, None) => {}
                            (_, Some(b)) => dict.bind(py).set_item(key, b)?,
                            (Some(_), None) => dict.bind(py).del_item(key)?,
                        }
                    }
                    if let Some(out) = out {
                        let kept = std::mem::replace(&mut values[out], Value::Object(old.map(Bound::unbind)));
                        if let Value::Object(Some(kept)) = kept {
                            dropped.push(kept);
                        }
                    } else {
                        dropped.extend(old.map(Bound::unbind));
                    }
                }
                Place::Memory { ranges, .. } => {
                    if let Some(Value::Bytes(bytes)) = out.map(|r| &mut values[r]) {
                        bytes.clear();
                        copy_out(ranges, bytes);
                    }
                    if let Some(Value::Bytes(bytes)) = into.map(|r| &values[r]) {
                        copy_in(ranges, bytes);
                    }
                }
                _ => break,
            }
            at += 1;
        }
        Ok(at)
    }

    fn keep(&self, slot: usize, rank: usize, value: Value) {
        let mut slots = self.slots.lock().expect("no swap panics");
        let dropped = std::mem::replace(&mut slots[slot].values[rank], value);
        drop(slots);
        drop(dropped);
    }
}

fn no_such() -> PyErr {
    PyIndexError::new_err("no such slot or rank")
}

#[pymethods]
impl Swapper {
    #[new]
    fn new(world_size: usize) -> Self {
        Self { world_size, slots: Mutex::default() }
    }

    /// An entry of a dict. Every rank starts with the value that is there now (or with none); returns the slot.
    fn add_entry(&self, py: Python<'_>, dict: Bound<'_, PyDict>, key: Bound<'_, PyAny>) -> PyResult<usize> {
        self.add(py, Place::Entry { dict: dict.unbind(), key: key.unbind() })
    }

    /// An attribute of an object: as stored on it, not inherited. Starts like `add_entry`.
    fn add_attribute(&self, py: Python<'_>, object: Bound<'_, PyAny>, name: Bound<'_, PyString>) -> PyResult<usize> {
        self.add(py, Place::Attribute { object: object.unbind(), name: name.unbind() })
    }

    /// All attributes of an object: its `__dict__` as a whole. Every rank starts with the *same* dict: set others.
    fn add_attributes(&self, py: Python<'_>, object: Py<PyAny>) -> PyResult<usize> {
        self.add(py, Place::Attributes { object })
    }

    /// State behind a pair of functions: `read() -> value`, `write(value)`. Every rank starts with what `read` gives.
    fn add_call(&self, py: Python<'_>, read: Py<PyAny>, write: Py<PyAny>) -> PyResult<usize> {
        self.add(py, Place::Call { read, write })
    }

    /// Bytes at `(address, length)` ranges, which must stay valid and writable while `owner` lives.
    fn add_memory(&self, py: Python<'_>, owner: Py<PyAny>, ranges: Vec<(usize, usize)>) -> PyResult<usize> {
        if ranges.iter().any(|r| r.0 == 0) {
            return Err(PyValueError::new_err("an address is 0"));
        }
        self.add(py, Place::Memory { ranges, _owner: owner })
    }

    /// Sets the value that `rank` finds in place at its next turn; not for the rank that runs now.
    fn set_value(&self, slot: usize, rank: usize, value: Py<PyAny>) -> PyResult<()> {
        self.set(slot, rank, Value::Object(Some(value)))
    }

    /// As `set_value`, for a slot of memory: all its ranges, one after the other.
    fn set_bytes(&self, slot: usize, rank: usize, value: Vec<u8>) -> PyResult<()> {
        self.set(slot, rank, Value::Bytes(value))
    }

    /// The kept value of a rank that is not running now.
    fn value(&self, py: Python<'_>, slot: usize, rank: usize) -> PyResult<Option<Py<PyAny>>> {
        let slots = self.slots.lock().expect("no swap panics");
        match slots.get(slot).and_then(|s| s.values.get(rank)).ok_or_else(no_such)? {
            Value::Object(value) => Ok(value.as_ref().map(|v| v.clone_ref(py))),
            Value::Bytes(bytes) => Ok(Some(PyBytes::new(py, bytes).into_any().unbind())),
        }
    }

    /// What is in place now, read as the slot reads it.
    fn current<'py>(&self, py: Python<'py>, slot: usize) -> PyResult<Option<Py<PyAny>>> {
        let place = {
            let slots = self.slots.lock().expect("no swap panics");
            slots.get(slot).ok_or_else(no_such)?.place.clone()
        };
        Ok(match place.read(py)? {
            Value::Object(value) => value,
            Value::Bytes(bytes) => Some(PyBytes::new(py, &bytes).into_any().unbind()),
        })
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

    /// After the run: puts back what was there when each slot was added, newest first, and forgets the slots.
    fn restore(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let Some(slot) = self.slots.lock().expect("no swap panics").pop() else { return Ok(()) };
            slot.place.write(py, &slot.before)?;
        }
    }
}

impl Swapper {
    fn set(&self, slot: usize, rank: usize, value: Value) -> PyResult<()> {
        let mut slots = self.slots.lock().expect("no swap panics");
        let slot = slots.get_mut(slot).ok_or_else(no_such)?;
        let fits = match (&*slot.place, &value) {
            (Place::Memory { ranges, .. }, Value::Bytes(bytes)) => {
                bytes.len() == ranges.iter().map(|r| r.1).sum::<usize>()
            }
            (Place::Memory { .. }, _) | (_, Value::Bytes(_)) => false,
            _ => true,
        };
        if !fits {
            return Err(PyValueError::new_err("the value does not fit the kind of the slot"));
        }
        let dropped = std::mem::replace(slot.values.get_mut(rank).ok_or_else(no_such)?, value);
        drop(slots);
        drop(dropped);
        Ok(())
    }
}

/// What `touch` calls, and the types (by address) whose instances concern it besides classes and modules.
struct Touch {
    handler: Py<PyAny>,
    types: Vec<Py<PyType>>,
}

static TOUCH: Mutex<Option<Arc<Touch>>> = Mutex::new(None);

/// From now on `touch` calls `handler(object, name)` for classes, modules and instances of exactly these types.
#[pyfunction]
pub(crate) fn set_touch_handler(handler: Option<Py<PyAny>>, types: Vec<Py<PyType>>) {
    let touch = handler.map(|handler| Arc::new(Touch { handler, types }));
    let dropped = std::mem::replace(&mut *TOUCH.lock().expect("never poisoned"), touch);
    drop(dropped);
}

/// Returns `object`, an attribute of which the user's code is about to set or delete.
#[pyfunction]
#[pyo3(signature = (object, name, /))]
pub(crate) fn touch<'py>(object: Bound<'py, PyAny>, name: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let is_plain = !object.is_instance_of::<PyType>() && !object.is_instance_of::<PyModule>();
    let Some(touch) = TOUCH.lock().expect("never poisoned").clone() else { return Ok(object) };
    if is_plain && !touch.types.iter().any(|t| object.get_type().is(t)) {
        return Ok(object);
    }
    touch.handler.call1(object.py(), (&object, name))?;
    Ok(object)
}
