//! Entries from tables with a header line: the columns of key and value are chosen by name.
//!
//! If no column is named for the value, it is the only other column. If there are several others, the value is a JSON
//! object of all of them in their order, with their text as strings.

use super::{Entry, EntryReader, InputError};
use drumlin_types::nearest;

/// Names of the columns of key and value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    /// Column of the key.
    pub(crate) key: String,
    /// Column of the value, if one is named.
    pub(crate) value: Option<String>,
}

/// Source of rows.
pub(crate) trait Rows {
    /// Returns the fields of the next row; `None` at the end.
    fn next_row(&mut self) -> Result<Option<Vec<Vec<u8>>>, InputError>;
    /// Returns the number of the line at which the last returned row starts.
    fn line(&self) -> u64;
    /// Returns the bytes of the rows returned so far.
    fn bytes(&self) -> u64;
}

/// The header of a table, and the positions of key and value in it.
struct Columns {
    names: Vec<String>,
    key: usize,
    value: Option<usize>,
}

impl Columns {
    fn find(header: &[Vec<u8>], named: &Named) -> Result<Columns, String> {
        let names: Vec<String> =
            header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let position = |wanted: &str| {
            names.iter().position(|name| name == wanted).ok_or_else(|| {
                let meant = nearest(names.iter().map(String::as_str), wanted);
                let meant = meant.map_or_else(String::new, |name| format!("; the nearest is {name}"));
                format!("the header has no column {wanted}{meant}; it has {}", names.join(", "))
            })
        };
        let key = position(&named.key)?;
        let value = named.value.as_deref().map(position).transpose()?;
        if names.len() < 2 {
            return Err("the header has a single column, so there are no values".to_owned());
        }
        let only_other = (names.len() == 2).then_some(1 - key.min(1));
        Ok(Columns { value: value.or(only_other), names, key })
    }

    fn entry(&self, mut fields: Vec<Vec<u8>>) -> Result<Entry, String> {
        if fields.len() != self.names.len() {
            return Err(format!("the row has {} fields, the header {}", fields.len(), self.names.len()));
        }
        let value = match self.value {
            Some(at) => fields[at].clone(),
            None => self.object(&fields)?,
        };
        Ok(Entry { key: fields.swap_remove(self.key), value })
    }

    /// Returns all columns but the key as a JSON object.
    fn object(&self, fields: &[Vec<u8>]) -> Result<Vec<u8>, String> {
        let mut members = Vec::new();
        for (at, (name, field)) in self.names.iter().zip(fields).enumerate().filter(|(at, _)| *at != self.key)
        {
            let text = std::str::from_utf8(field).map_err(|_| {
                format!("field {} ({name}) is not UTF-8; choose a value column with --value", at + 1)
            })?;
            let quoted = |text: &str| serde_json::Value::from(text).to_string();
            members.push(format!("{}:{}", quoted(name), quoted(text)));
        }
        Ok(format!("{{{}}}", members.join(",")).into_bytes())
    }
}

/// Reads entries from the rows after a header.
pub(crate) struct TableReader<T> {
    rows: T,
    named: Named,
    columns: Option<Columns>,
}

impl<T: Rows> TableReader<T> {
    /// Creates a reader of the entries of `rows`, the first of which is the header.
    pub(crate) fn new(rows: T, named: Named) -> TableReader<T> {
        TableReader { rows, named, columns: None }
    }

    fn read(&mut self) -> Result<Option<Entry>, InputError> {
        loop {
            let Some(row) = self.rows.next_row()? else { return Ok(None) };
            let bad = |what| InputError::bad(self.rows.line(), what);
            match &self.columns {
                Some(columns) => return columns.entry(row).map(Some).map_err(bad),
                None => self.columns = Some(Columns::find(&row, &self.named).map_err(bad)?),
            }
        }
    }
}

impl<T: Rows> Iterator for TableReader<T> {
    type Item = Result<Entry, InputError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl<T: Rows> EntryReader for TableReader<T> {
    fn bytes_read(&self) -> u64 {
        self.rows.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::csv::Records;
    use super::super::tsv::TsvRows;
    use super::*;

    fn named(key: &str, value: Option<&str>) -> Named {
        Named { key: key.to_owned(), value: value.map(str::to_owned) }
    }

    fn read(reader: impl EntryReader) -> Result<Vec<(String, String)>, String> {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8 in, UTF-8 out");
        reader.map(|r| r.map(|e| (text(e.key), text(e.value))).map_err(|e| e.to_string())).collect()
    }

    fn csv(text: &str, key: &str, value: Option<&str>) -> Result<Vec<(String, String)>, String> {
        read(TableReader::new(Records::new(text.as_bytes()), named(key, value)))
    }

    fn pairs(expected: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        Ok(expected.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    #[test]
    fn columns_are_chosen_by_name() {
        let text = "\u{feff}name,id,age\r\n\"ada, c\",1,36\r\nbob,2,\"4\"\"1\"\r\n";
        assert_eq!(csv(text, "id", Some("name")), pairs(&[("1", "ada, c"), ("2", "bob")]));
        let objects = [("1", r#"{"name":"ada, c","age":"36"}"#), ("2", r#"{"name":"bob","age":"4\"1"}"#)];
        assert_eq!(csv(text, "id", None), pairs(&objects));
        assert_eq!(csv("v,k\n1,a\n", "k", None), pairs(&[("a", "1")]));
        assert_eq!(csv("k,v\na,1\n", "k", None), pairs(&[("a", "1")]));
        assert_eq!(csv("", "k", None), pairs(&[]));
        let rows = TsvRows::new("id\tname\tage\n1\\x32\tada\t36\n".as_bytes());
        let read = read(TableReader::new(rows, named("id", Some("age"))));
        assert_eq!(read, pairs(&[("12", "36")]));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let header = "name,id\na,1,x\n";
        for (text, key, value, what) in [
            (header, "idd", None, "line 1: the header has no column idd; the nearest is id; it has name, id"),
            (header, "id", Some("zz"), "line 1: the header has no column zz; it has name, id"),
            (header, "id", None, "line 2: the row has 3 fields, the header 2"),
            ("id\n1\n", "id", None, "line 1: the header has a single column, so there are no values"),
        ] {
            assert_eq!(csv(text, key, value), Err(what.to_owned()), "{text:?} {key}");
        }
    }
}
