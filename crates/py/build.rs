//! Lets a plain `cargo build` link on macOS, where an extension module looks its symbols up when it is loaded.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
