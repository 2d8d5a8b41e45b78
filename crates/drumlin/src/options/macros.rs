//! Macros that generate an options struct from a list of options, and an enum from a list of names.

/// Defines an enum whose values have names in options.
macro_rules! named {
    ($(#[$meta:meta])* pub enum $type:ident {
        $($(#[$case_meta:meta])* $case:ident = $name:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $type {
            $($(#[$case_meta])* $case,)+
        }

        impl $type {
            /// All values.
            pub const ALL: &'static [$type] = &[$($type::$case),+];
            /// Names of all values, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// Returns the name in options and reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$case => $name,)+
                }
            }
        }

        impl $crate::options::registry::Field for $type {
            fn to_value(&self) -> $crate::options::registry::Value {
                $crate::options::registry::Value::Text(self.name().to_owned())
            }
            fn from_value(value: &$crate::options::registry::Value) -> Option<Self> {
                let $crate::options::registry::Value::Text(name) = value else { return None };
                Self::ALL.iter().copied().find(|case| case.name() == name)
            }
        }
    };
}
pub(super) use named;

/// Defines an options struct from a list of entries. `defs` describes the form of an entry.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $type:ident, $scope:ident, others $others:expr;
        $(
            $(#[doc = $doc:literal])+ $(#[cfg($when:meta)])?
            $field:ident: $field_type:ty = $default:expr => $def:expr;
        )+
    ) => {
        $(#[$meta])*
        ///
        /// Start from the default, then assign fields or call [`set`](Self::set). `docs/options.md` in the repository
        /// has the same list as a table, and [`options_help`](crate::options_help) as a text.
        ///
        /// Each field shows its default and how its values are declared: `bytes(64 * KIB, GIB)` accepts 64 KiB to 1
        /// GiB. In the declaration, `zero` is the meaning of 0, `absent` a word for no value, and `unit` the unit.
        /// `live` options can be changed while the store is open. Few programs need `expert` options.
        #[derive(Clone, PartialEq, Debug)]
        #[non_exhaustive]
        pub struct $type {
            $(
                $(#[doc = $doc])+
                #[doc = concat!("\n\nDefault: `", stringify!($default), "`. Values: `", stringify!($def), "`.")]
                $(#[cfg($when)])?
                pub $field: $field_type,
            )+
        }

        impl Default for $type {
            fn default() -> Self {
                $type { $($(#[cfg($when)])? $field: $default,)+ }
            }
        }

        impl $crate::options::registry::OptionSet for $type {
            const OTHERS: &'static [$crate::options::registry::OptionDef] = $others;
            const DEFS: &'static [$crate::options::registry::OptionDef] = &[
                $(
                    $(#[cfg($when)])?
                    $def.named(stringify!($field), concat!($($doc),+), $crate::options::Scope::$scope),
                )+
            ];

            fn value(&self, position: usize) -> $crate::options::registry::Value {
                let values = [$($(#[cfg($when)])? $crate::options::registry::Field::to_value(&self.$field)),+];
                values.into_iter().nth(position).unwrap_or($crate::options::registry::Value::Absent)
            }

            fn assign(&mut self, position: usize, value: &$crate::options::registry::Value) -> bool {
                let mut fields = Self::DEFS.iter().enumerate();
                $(
                    $(#[cfg($when)])?
                    if fields.next().is_some_and(|(field, _)| field == position) {
                        let Some(value) = $crate::options::registry::Field::from_value(value) else { return false };
                        self.$field = value;
                        return true;
                    }
                )+
                false
            }
        }

        impl $type {
            /// Returns the descriptions of all options, in the order of the fields.
            pub fn defs() -> &'static [$crate::options::OptionDef] {
                <Self as $crate::options::registry::OptionSet>::DEFS
            }

            /// Sets the option `name` to `value`, given as text: `64MiB`, `1.5`, `true` or a name.
            ///
            /// Byte sizes take a unit: `64MiB`, `64M` and `67108864` are the same, and `64MB` is 64 million.
            ///
            /// # Errors
            /// `InvalidOption` when there is no such option or the value is out of bounds. Then the options are
            /// unchanged.
            pub fn set(&mut self, name: &str, value: &str) -> $crate::base::error::Result<()> {
                $crate::options::parse::set(self, name, value)
            }

            /// Returns the value of the option `name`, as text that `set` accepts.
            ///
            /// # Errors
            /// `InvalidOption` when there is no such option.
            pub fn get(&self, name: &str) -> $crate::base::error::Result<String> {
                $crate::options::parse::get(self, name)
            }

            /// Checks fields that were assigned directly.
            ///
            /// # Errors
            /// `InvalidOption` for the first value out of bounds.
            pub fn validate(&self) -> $crate::base::error::Result<()> {
                $crate::options::parse::validate(self)
            }

            /// Returns the names of all options and their values, as text that `set` accepts.
            pub fn pairs(&self) -> Vec<(&'static str, String)> {
                $crate::options::parse::pairs(self)
            }

            /// Returns random legal options, the same for the same seed. They are for tests: small sizes and the
            /// ends of the bounds are frequent. Options that can change results or errors keep their defaults. Needs
            /// the feature `testing`.
            #[cfg(feature = "testing")]
            pub fn random(seed: u64) -> Self {
                $crate::options::random::random(seed)
            }
        }
    };
}
pub(super) use settings;
