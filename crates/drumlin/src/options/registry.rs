//! Parts of an entry of the option list: shapes, descriptions and values of options.

use drumlin_format::compression::Compression;
#[cfg(feature = "experiments")]
use drumlin_types::contract::Pin;

/// Scope of an option: the store or a keyspace. See [`OptionDef`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The store: a field of [`Options`](super::Options).
    Store,
    /// Each keyspace: a field of [`KeyspaceOptions`](super::KeyspaceOptions).
    Keyspace,
}

/// Kind of values that an option accepts. See [`OptionDef`].
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
        /// Description of the form.
        form: &'static str,
        /// Function that returns whether a text has the form.
        check: fn(&str) -> bool,
        /// Examples of valid texts.
        samples: &'static [&'static str],
    },
}

/// Description of one option, for programs that print or check options. [`Options::defs`](super::Options::defs) and
/// [`KeyspaceOptions::defs`](super::KeyspaceOptions::defs) return them.
///
/// ```
/// for option in drumlin::Options::defs().iter().filter(|option| !option.expert) {
///     println!("{}: {}", option.name, option.bounds());
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OptionDef {
    /// Name of the option. It never changes.
    pub name: &'static str,
    /// Help text: what the option does.
    pub doc: &'static str,
    /// Scope of the option.
    pub scope: Scope,
    /// Values that the option accepts, besides those of `zero` and `absent`.
    pub shape: Shape,
    /// Unit of the numbers; empty when there is none.
    pub unit: &'static str,
    /// Meaning of 0, if it is allowed besides the bounds.
    pub zero: Option<&'static str>,
    /// Word for "no value", if that is allowed.
    pub absent: Option<&'static str>,
    /// Whether the option can be changed while the store is open.
    pub live: bool,
    /// Whether few programs need the option.
    pub expert: bool,
    #[doc(hidden)]
    /// Whether the option is of no use to any program: only builds with the feature `experiments` have it, and
    /// `docs/options.md` does not list it.
    pub experiment: bool,
    #[doc(hidden)]
    /// Whether the option can change the results or errors that a correct program sees. Tests do not draw such options
    /// at random.
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
        experiment: false,
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

    #[cfg(feature = "experiments")]
    pub(super) const fn experiment(self) -> OptionDef {
        OptionDef { experiment: true, ..self }
    }

    pub(super) const fn alters_answers(self) -> OptionDef {
        OptionDef { alters_answers: true, ..self }
    }
}

/// Value of any option.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Absent,
    Whole(u64),
    Ratio(f64),
    Flag(bool),
    Text(String),
}

/// Type of a field of the options structs.
pub(super) trait Field: Sized {
    fn to_value(&self) -> Value;
    /// Returns `None` when the value has another type.
    fn from_value(value: &Value) -> Option<Self>;
}

/// Implements `Field` for a type that is the content of one case of [`Value`].
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

#[cfg(feature = "experiments")]
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

/// Interface of a struct that `settings!` generates. It accesses fields by their position in `DEFS`.
pub(super) trait OptionSet: Default {
    /// Options of the other scope, for hints in errors.
    const OTHERS: &'static [OptionDef];
    const DEFS: &'static [OptionDef];
    fn value(&self, position: usize) -> Value;
    /// Sets a field. Returns false, and changes nothing, when the value and the field have different types.
    fn assign(&mut self, position: usize, value: &Value) -> bool;
}
