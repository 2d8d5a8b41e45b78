//! What an entry of the option list is made of, and the macro that turns a list into a struct.

use drumlin_format::compression::Compression;
use drumlin_types::contract::Pin;

/// What an option belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The store: a field of [`Options`](super::Options).
    Store,
    /// Each keyspace: a field of [`KeyspaceOptions`](super::KeyspaceOptions).
    Keyspace,
}

/// What values an option takes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Shape {
    /// A number of bytes, from `least` to `most`; printed and parsed with units.
    Bytes {
        /// Smallest value.
        least: u64,
        /// Largest value.
        most: u64,
    },
    /// A whole number, from `least` to `most`.
    Count {
        /// Smallest value.
        least: u64,
        /// Largest value.
        most: u64,
    },
    /// A number with a fraction, from `least` to `most`.
    Ratio {
        /// Smallest value.
        least: f64,
        /// Largest value.
        most: f64,
    },
    /// `true` or `false`.
    Flag,
    /// One of these names.
    Names(&'static [&'static str]),
    /// Text of a certain form.
    Text {
        /// The form in words.
        form: &'static str,
        /// Whether a text has it.
        check: fn(&str) -> bool,
        /// Some that do.
        samples: &'static [&'static str],
    },
}

/// The description of one option.
#[derive(Clone, Copy, Debug)]
pub struct OptionDef {
    /// Its name, for ever.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// What it belongs to.
    pub scope: Scope,
    /// The values it takes, those of `zero` and `absent` aside.
    pub shape: Shape,
    /// Unit of the numbers; empty when they have none.
    pub unit: &'static str,
    /// What 0 means, if it is allowed beside the bounds.
    pub zero: Option<&'static str>,
    /// The word for "no value", if that is allowed.
    pub absent: Option<&'static str>,
    /// Whether an open store takes a new value.
    pub live: bool,
    /// Whether it is for experts: what an experiment needs to match another engine.
    pub expert: bool,
    /// Whether it may change what a correct program sees. Tests do not draw such options at random.
    pub alters_answers: bool,
}

const fn def(shape: Shape, unit: &'static str) -> OptionDef {
    OptionDef {
        name: "",
        doc: "",
        scope: Scope::Store,
        shape,
        unit,
        zero: None,
        absent: None,
        live: false,
        expert: false,
        alters_answers: false,
    }
}

pub(super) const fn bytes(least: u64, most: u64) -> OptionDef {
    def(Shape::Bytes { least, most }, "bytes")
}

pub(super) const fn count(least: u64, most: u64) -> OptionDef {
    def(Shape::Count { least, most }, "")
}

pub(super) const fn ratio(least: f64, most: f64) -> OptionDef {
    def(Shape::Ratio { least, most }, "")
}

pub(super) const fn names(names: &'static [&'static str]) -> OptionDef {
    def(Shape::Names(names), "")
}

pub(super) const fn text(
    form: &'static str,
    check: fn(&str) -> bool,
    samples: &'static [&'static str],
) -> OptionDef {
    def(Shape::Text { form, check, samples }, "")
}

impl OptionDef {
    pub(super) const fn named(self, name: &'static str, doc: &'static str, scope: Scope) -> OptionDef {
        OptionDef { name, doc, scope, ..self }
    }

    pub(super) const fn unit(self, unit: &'static str) -> OptionDef {
        OptionDef { unit, ..self }
    }

    pub(super) const fn zero(self, meaning: &'static str) -> OptionDef {
        OptionDef { zero: Some(meaning), ..self }
    }

    pub(super) const fn absent(self, word: &'static str) -> OptionDef {
        OptionDef { absent: Some(word), ..self }
    }

    pub(super) const fn live(self) -> OptionDef {
        OptionDef { live: true, ..self }
    }

    pub(super) const fn expert(self) -> OptionDef {
        OptionDef { expert: true, ..self }
    }

    pub(super) const fn alters_answers(self) -> OptionDef {
        OptionDef { alters_answers: true, ..self }
    }
}

/// The value of any option.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Absent,
    Whole(u64),
    Ratio(f64),
    Flag(bool),
    Text(String),
}

/// A type that a field of the settings can have.
pub(super) trait Field: Sized {
    fn to_value(&self) -> Value;
    /// `None` when the value is of another type.
    fn from_value(value: &Value) -> Option<Self>;
}

/// A field type that is one case of [`Value`].
macro_rules! plain_field {
    ($type:ty, $case:ident) => {
        impl Field for $type {
            fn to_value(&self) -> Value {
                Value::$case(self.clone())
            }
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    Value::$case(inner) => Some(inner.clone()),
                    _ => None,
                }
            }
        }
    };
}
plain_field!(u64, Whole);
plain_field!(f64, Ratio);
plain_field!(bool, Flag);
plain_field!(String, Text);

impl Field for Compression {
    fn to_value(&self) -> Value {
        Value::Text(self.name().to_owned())
    }
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Text(name) = value else { return None };
        Compression::ALL.into_iter().find(|method| method.name() == name)
    }
}

impl Field for Pin {
    fn to_value(&self) -> Value {
        Value::Text(self.to_string())
    }
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        text.parse().ok()
    }
}

impl<T: Field> Field for Option<T> {
    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Absent, Field::to_value)
    }
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Absent => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

/// A struct made by `settings!`: its fields by position in `DEFS`.
pub(super) trait Settings: Default {
    const DEFS: &'static [OptionDef];
    fn value(&self, position: usize) -> Value;
    /// False when the value is of another type than the field; then nothing changed.
    fn assign(&mut self, position: usize, value: &Value) -> bool;
}

/// An enum whose values have names in options.
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
            /// Their names, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The name in options and reports.
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

/// A settings struct from a list of entries: see `defs` for their form.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $type:ident, $scope:ident;
        $($(#[doc = $doc:literal])+ $field:ident: $field_type:ty = $default:expr => $def:expr;)+
    ) => {
        $(#[$meta])*
        ///
        /// Start from the default, then assign fields or call `set`.
        #[derive(Clone, PartialEq, Debug)]
        #[non_exhaustive]
        pub struct $type {
            $($(#[doc = $doc])+ pub $field: $field_type,)+
        }

        impl Default for $type {
            fn default() -> Self {
                $type { $($field: $default,)+ }
            }
        }

        impl $crate::options::registry::Settings for $type {
            const DEFS: &'static [$crate::options::registry::OptionDef] = &[
                $($def.named(stringify!($field), concat!($($doc),+), $crate::options::Scope::$scope),)+
            ];

            fn value(&self, position: usize) -> $crate::options::registry::Value {
                let values = [$($crate::options::registry::Field::to_value(&self.$field)),+];
                values.into_iter().nth(position).unwrap_or($crate::options::registry::Value::Absent)
            }

            fn assign(&mut self, position: usize, value: &$crate::options::registry::Value) -> bool {
                let mut fields = Self::DEFS.iter().enumerate();
                $(
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
            /// The options of this struct, in its order.
            pub fn defs() -> &'static [$crate::options::OptionDef] {
                <Self as $crate::options::registry::Settings>::DEFS
            }

            /// Sets the option `name` to `value`, as text: `64MiB`, `1.5`, `true`, a name.
            ///
            /// # Errors
            /// `InvalidOption` when there is no such option or the value is out of bounds. Then nothing
            /// changed.
            pub fn set(&mut self, name: &str, value: &str) -> $crate::error::Result<()> {
                $crate::options::parse::set(self, name, value)
            }

            /// The value of the option `name`, as text that `set` understands.
            ///
            /// # Errors
            /// `InvalidOption` when there is no such option.
            pub fn get(&self, name: &str) -> $crate::error::Result<String> {
                $crate::options::parse::get(self, name)
            }

            /// Checks fields that were assigned directly.
            ///
            /// # Errors
            /// `InvalidOption` for the first value out of bounds.
            pub fn validate(&self) -> $crate::error::Result<()> {
                $crate::options::parse::validate(self)
            }

            /// All options and their values, as text.
            pub fn pairs(&self) -> Vec<(&'static str, String)> {
                $crate::options::parse::pairs(self)
            }

            /// Random legal settings, the same for the same seed. For tests: small sizes and the ends of
            /// the bounds are frequent, and options that may change answers keep their defaults.
            pub fn random(seed: u64) -> Self {
                $crate::options::random::random(seed)
            }
        }
    };
}
pub(super) use settings;
