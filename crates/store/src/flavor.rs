//! Whose habits a store has.

/// The class of torch that a store stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flavor {
    /// `TCPStore` with its default (libuv) server.
    Tcp,
    /// `HashStore`.
    Hash,
    /// `FileStore`.
    File,
}

impl Flavor {
    /// Whether `append`, `multi_get` and `multi_set` are single operations, which `has_extended_api` answers.
    pub fn has_extended_api(self) -> bool {
        self != Flavor::File
    }

    /// Whether queues exist.
    pub fn has_queues(self) -> bool {
        self != Flavor::File
    }

    /// Keys that the class itself adds and `num_keys` counts: `FileStore`'s count of users.
    pub(crate) fn own_keys(self) -> usize {
        usize::from(self == Flavor::File)
    }

    /// A key as error messages show it.
    pub(crate) fn shown(self, key: &str) -> String {
        match self {
            Flavor::Tcp => format!("/{key}"),
            Flavor::Hash | Flavor::File => key.to_owned(),
        }
    }
}
