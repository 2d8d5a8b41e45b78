//! A secondary index: a batch over two keyspaces keeps rows and index entries consistent, also after a crash.
//!
//! A change reads the row and then writes, so one thread at a time may change rows: `put` takes `&mut self`.
//!
//! `cargo run --example index -p drumlin`

use drumlin::{Batch, Db, Durability, Keyspace, Result};

/// People by name, and names by city. The index key is `city NUL name`.
struct People {
    db: Db,
    rows: Keyspace,
    by_city: Keyspace,
}

impl People {
    fn put(&mut self, name: &str, city: &str) -> Result<()> {
        let mut batch = Batch::new();
        if let Some(old) = self.rows.get(name)? {
            batch.delete(&self.by_city, index_key(&String::from_utf8_lossy(&old), name));
        }
        batch.put(&self.rows, name, city);
        batch.put(&self.by_city, index_key(city, name), "");
        self.db.write_with(batch, Durability::Sync)?;
        Ok(())
    }

    fn in_city(&self, city: &str) -> Result<Vec<String>> {
        let prefix = index_key(city, "");
        let names = self.by_city.prefix(&prefix).map(|entry| {
            let (key, _) = entry?;
            Ok(String::from_utf8_lossy(&key[prefix.len()..]).into_owned())
        });
        names.collect()
    }
}

fn index_key(city: &str, name: &str) -> Vec<u8> {
    [city.as_bytes(), &[0], name.as_bytes()].concat()
}

fn main() -> Result<()> {
    let dir = drumlin::env::TempDir::new("drumlin-index").expect("a temporary directory");
    let db = Db::open(dir.path())?;
    let mut people = People { rows: db.keyspace("people")?, by_city: db.keyspace("people.by_city")?, db };
    people.put("ada", "London")?;
    people.put("grace", "New York")?;
    people.put("alan", "London")?;
    people.put("ada", "Paris")?;
    println!("in London: {:?}", people.in_city("London")?);
    assert_eq!(people.in_city("London")?, ["alan"]);
    assert_eq!(people.in_city("Paris")?, ["ada"]);
    Ok(())
}
