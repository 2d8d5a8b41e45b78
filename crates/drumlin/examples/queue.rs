//! A durable queue: push at the end, pop at the head. Popped entries do not slow down later pops.
//!
//! `cargo run --example queue -p drumlin`

use drumlin::{Db, Durability, Keyspace, Result};

struct Queue {
    entries: Keyspace,
    next: u64,
}

impl Queue {
    /// Opens the queue; new entries follow the last one that is left.
    fn open(db: &Db) -> Result<Queue> {
        let entries = db.keyspace("queue")?;
        let last = entries.iter().next_back().transpose()?;
        let next = last.map_or(0, |(key, _)| number(&key) + 1);
        Ok(Queue { entries, next })
    }

    fn push(&mut self, value: &str) -> Result<()> {
        self.entries.put_with(self.next.to_be_bytes(), value, Durability::Sync)?;
        self.next += 1;
        Ok(())
    }

    fn pop(&mut self) -> Result<Option<String>> {
        let Some((key, value)) = self.entries.iter().next().transpose()? else { return Ok(None) };
        self.entries.delete(&key)?;
        Ok(Some(String::from_utf8_lossy(&value).into_owned()))
    }
}

fn number(key: &[u8]) -> u64 {
    key.try_into().map_or(0, u64::from_be_bytes)
}

fn main() -> Result<()> {
    let dir = drumlin::env::TempDir::new("drumlin-queue").expect("a temporary directory");
    let db = Db::open(dir.path())?;
    let mut queue = Queue::open(&db)?;
    for job in ["resize image 7", "send mail 12", "resize image 8"] {
        queue.push(job)?;
    }
    while let Some(job) = queue.pop()? {
        println!("{job}");
    }
    assert_eq!(queue.pop()?, None);
    db.close()
}
