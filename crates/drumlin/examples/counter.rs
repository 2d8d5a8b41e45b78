//! Page counters with a merge operator: increments are blind writes, and reads see the sum.
//!
//! `cargo run --example counter -p drumlin`

use drumlin::{AddI64, Db, Result};
use std::sync::Arc;

fn main() -> Result<()> {
    let dir = drumlin::env::TempDir::new("drumlin-counter").expect("a temporary directory");
    let db = Db::builder(dir.path()).merge_operator("hits", Arc::new(AddI64::Text)).open()?;
    let hits = db.keyspace("hits")?;
    for page in ["/", "/docs", "/", "/blog", "/"] {
        hits.merge(page, "1")?;
    }
    for entry in hits.iter() {
        let (page, count) = entry?;
        println!("{} {}", String::from_utf8_lossy(&page), String::from_utf8_lossy(&count));
    }
    assert_eq!(hits.get("/")?.as_deref(), Some(&b"3"[..]));
    db.close()
}
