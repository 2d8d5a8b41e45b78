//! Options of a keyspace as programs pass them: pairs of a name and a value, or a [`KeyspaceOptions`].

use super::KeyspaceOptions;

/// Options that [`Db::keyspace_with`](crate::Db::keyspace_with) and
/// [`Db::create_keyspace`](crate::Db::create_keyspace) accept:
///
/// - pairs of a name and a value, in an array, slice or `Vec`: `&[("compression", "zstd")]`. Options that are not named
///   keep their values.
/// - a [`KeyspaceOptions`]. Every option gets the value of its field, so those that the program left alone get their
///   defaults.
///
/// The trait is sealed: programs do not implement it.
pub trait KeyspaceSettings: sealed::Sealed {
    /// Returns the names and values of the options to set.
    #[doc(hidden)]
    fn settings(&self) -> Vec<(String, String)>;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for [(&str, &str)] {}
    impl<const N: usize> Sealed for [(&str, &str); N] {}
    impl Sealed for Vec<(&str, &str)> {}
    impl Sealed for super::KeyspaceOptions {}
}

impl KeyspaceSettings for [(&str, &str)] {
    fn settings(&self) -> Vec<(String, String)> {
        self.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }
}

impl<const N: usize> KeyspaceSettings for [(&str, &str); N] {
    fn settings(&self) -> Vec<(String, String)> {
        self[..].settings()
    }
}

impl KeyspaceSettings for Vec<(&str, &str)> {
    fn settings(&self) -> Vec<(String, String)> {
        self[..].settings()
    }
}

impl KeyspaceSettings for KeyspaceOptions {
    fn settings(&self) -> Vec<(String, String)> {
        self.pairs().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
