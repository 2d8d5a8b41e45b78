//! Suites: several workloads in one run.

use super::{Workload, dynamic, micro, papers, ycsb};
use crate::engine::Result;

/// Number of records of the smallest runs, which only test the harness.
const SMOKE: u64 = 2_000;

/// Returns the sizes of YCSB with `records` rows and `ops` operations.
fn ycsb_sizes(records: u64, ops: u64, value_bytes: usize) -> ycsb::Sizes {
    ycsb::Sizes {
        records,
        ops,
        value_bytes,
        value_ratio: 0.5,
        threads: 1,
        distribution: ycsb::Distribution::Ycsb,
        update: ycsb::Update::Whole,
    }
}

/// Returns all micro benchmarks on `num` entries.
fn micro_all(num: u64, value_bytes: usize) -> Result<Vec<Workload>> {
    let key_bytes = if value_bytes > 100 { 24 } else { 16 };
    let sizes = micro::Sizes { num, value_bytes, key_bytes, ..micro::Sizes::default() };
    micro::workloads(&["all".to_owned()], &sizes)
}

/// Returns a short run of every family.
pub fn smoke() -> Result<Vec<Workload>> {
    let mut workloads = micro_all(SMOKE, 100)?;
    workloads.push(ycsb::workload("all", &ycsb_sizes(SMOKE, SMOKE, 100))?);
    let tiny = SMOKE as f64 / 40_960_000.0;
    for plan in ["I", "III", "gradient", "versions"] {
        workloads.push(dynamic::workload(plan, tiny)?);
    }
    workloads.extend(of_papers(tiny, tiny)?);
    Ok(workloads)
}

/// Returns the families of papers except the dynamic ones; `values` has its own scale.
fn of_papers(scale: f64, of_values: f64) -> Result<Vec<Workload>> {
    Ok(vec![
        papers::growth("all", "uniform", scale)?,
        papers::filters("I", 0.0, "uniform", scale)?,
        papers::filters("II", 0.5, "normal", scale)?,
        papers::pipeline("rrwr", &[90, 70, 50], scale)?,
        papers::values(0.9, 4096, of_values)?,
    ])
}

/// Returns every family at quick scale.
pub fn quick() -> Result<Vec<Workload>> {
    let mut workloads = micro_all(1_000_000, 100)?;
    workloads.push(ycsb::workload("all", &ycsb_sizes(1_000_000, 1_000_000, 100))?);
    for plan in ["I", "II", "III", "gradient", "versions"] {
        workloads.push(dynamic::workload(plan, 1.0 / 64.0)?);
    }
    workloads.extend(of_papers(1.0 / 64.0, 1.0 / 256.0)?);
    Ok(workloads)
}

/// Returns every family of a paper at its default scale.
pub fn papers_suite() -> Result<Vec<Workload>> {
    let mut workloads = Vec::new();
    for plan in ["I", "II", "III", "gradient", "versions"] {
        workloads.push(dynamic::workload(plan, 1.0 / 16.0)?);
    }
    workloads.push(papers::growth("all", "uniform", 0.25)?);
    workloads.push(papers::growth("all", "zipf", 0.25)?);
    workloads.extend(of_papers(1.0 / 16.0, 1.0 / 64.0)?.into_iter().skip(1));
    Ok(workloads)
}

/// Returns the workloads of the performance goals.
pub fn goals() -> Result<Vec<Workload>> {
    let mut workloads = micro_all(10_000_000, 100)?;
    workloads.extend(micro_all(2_000_000, 1000)?);
    workloads.push(ycsb::workload("all", &ycsb_sizes(10_000_000, 5_000_000, 100))?);
    workloads.push(dynamic::workload("I", 1.0 / 16.0)?);
    workloads.push(dynamic::workload("II", 1.0 / 16.0)?);
    Ok(workloads)
}

/// Returns the workloads of a release.
pub fn release() -> Result<Vec<Workload>> {
    let mut workloads = goals()?;
    workloads.push(ycsb::workload("all", &ycsb_sizes(2_500_000, 5_000_000, 1000))?);
    workloads.extend(papers_suite()?.into_iter().skip(2));
    Ok(workloads)
}
