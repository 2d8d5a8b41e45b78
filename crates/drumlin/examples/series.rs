//! A time series whose points expire: a TTL per keyspace, and range scans by time.
//!
//! `cargo run --example series -p drumlin`

use drumlin::{Db, Result};

/// Keys sort by sensor, then by time.
fn key(sensor: &str, second: u64) -> Vec<u8> {
    [sensor.as_bytes(), &[0], &second.to_be_bytes()].concat()
}

fn main() -> Result<()> {
    let dir = drumlin::env::TempDir::new("drumlin-series").expect("a temporary directory");
    let db = Db::open(dir.path())?;
    // Points are kept for a week.
    let points = db.keyspace_with("points", &[("ttl_seconds", "604800")])?;
    for second in 0..3600u64 {
        let degrees = 20.0 + (second as f64 / 600.0).sin();
        points.put(key("roof", second), format!("{degrees:.2}"))?;
    }
    let minute = points.range(key("roof", 600)..key("roof", 660));
    let values: Vec<f64> = minute
        .map(|entry| Ok(String::from_utf8_lossy(&entry?.1).parse().unwrap_or(f64::NAN)))
        .collect::<Result<_>>()?;
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    println!("{} points, mean {mean:.2} degrees", values.len());
    assert_eq!(values.len(), 60);
    db.close()
}
