//! Boosted regression trees over small rows of bins.
//!
//! Least squares: each tree fits what the trees before it leave over. The leaf whose best split gains most is split
//! next (best-first growth, as in LightGBM: Ke et al., NeurIPS 2017), until a tree has [`MOST_LEAVES`] leaves. A split
//! gains
//!
//! ```text
//! SL^2 / (nL + 1) + SR^2 / (nR + 1) - S^2 / (n + 1)
//! ```
//!
//! for sums S of residuals and numbers n of rows (XGBoost: Chen and Guestrin, KDD 2016, equation 7, with lambda 1 and
//! gamma 0). Sums are taken in row order, so the same rows give the same trees on every machine. [`Training`] grows one
//! tree per step.

use super::bytes::take;
use alloc::vec;
use alloc::vec::Vec;

/// Number of features of a row.
pub const FEATURES: usize = 22;
/// Number of bins of a feature. Bin 0 is for a missing value.
pub const BINS: usize = 64;
/// A row: the bin of each feature.
pub type Row = [u8; FEATURES];

/// Number of trees of a model.
pub const TREES: usize = 32;
/// Most leaves of a tree.
pub const MOST_LEAVES: usize = 32;
/// Fewest rows of a leaf.
const LEAST_ROWS: usize = 20;
/// Number of trees that a prediction walks together.
const ABREAST: usize = 8;
/// Learning rate: share of its correction that each tree applies.
const RATE: f64 = 0.15;

/// A row with its label.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Labelled {
    /// Features.
    pub row: Row,
    /// What is to be predicted.
    pub label: f32,
}

/// A split or a leaf.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Node {
    feature: u8,
    /// Rows up to this bin go left.
    bin: u8,
    /// Left child; the right one follows it. A leaf is its own left child; its bin is 255, so no row goes right.
    left: u32,
    value: f32,
}

impl Node {
    fn leaf(index: usize) -> Node {
        Node { feature: 0, bin: u8::MAX, left: index as u32, value: 0.0 }
    }
}

/// A trained model.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trees {
    base: f64,
    nodes: Vec<Node>,
    roots: Vec<u32>,
}

impl Trees {
    /// Returns the prediction for `row`.
    #[must_use]
    pub fn predict(&self, row: &Row) -> f64 {
        self.predict_abreast::<ABREAST>(row)
    }

    /// Walks `N` trees together. Within one tree each load waits for the one before; loads of different trees overlap.
    /// Any `N` gives the same sum.
    fn predict_abreast<const N: usize>(&self, row: &Row) -> f64 {
        let mut sum = self.base;
        for roots in self.roots.chunks(N) {
            let mut at = [0; N];
            let at = &mut at[..roots.len()];
            at.copy_from_slice(roots);
            let mut has_moved = true;
            while has_moved {
                has_moved = false;
                for at in &mut *at {
                    let node = &self.nodes[*at as usize];
                    let next = node.left + u32::from(row[usize::from(node.feature)] > node.bin);
                    has_moved |= next != *at;
                    *at = next;
                }
            }
            sum = at.iter().fold(sum, |sum, leaf| sum + f64::from(self.nodes[*leaf as usize].value));
        }
        sum
    }

    /// Appends the trees to `out`.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        out.extend(self.base.to_le_bytes());
        out.push(self.roots.len() as u8);
        self.roots.iter().for_each(|root| out.extend((*root as u16).to_le_bytes()));
        out.extend((self.nodes.len() as u16).to_le_bytes());
        for node in &self.nodes {
            out.extend([node.feature, node.bin]);
            out.extend((node.left as u16).to_le_bytes());
            out.extend(node.value.to_le_bytes());
        }
    }

    /// Takes saved trees off the front of `bytes`. Refuses nodes from which a walk would not reach a leaf.
    pub(super) fn restore(bytes: &mut &[u8]) -> Option<Trees> {
        let base = f64::from_le_bytes(take(bytes)?);
        let [roots] = take(bytes)?;
        let roots: Option<Vec<u32>> =
            (0..roots).map(|_| Some(u32::from(u16::from_le_bytes(take(bytes)?)))).collect();
        let count = usize::from(u16::from_le_bytes(take(bytes)?));
        if count > TREES * (2 * MOST_LEAVES - 1) {
            return None;
        }
        let mut nodes = Vec::new();
        for index in 0..count {
            let [feature, bin] = take(bytes)?;
            let left = u32::from(u16::from_le_bytes(take(bytes)?));
            let node = Node { feature, bin, left, value: f32::from_le_bytes(take(bytes)?) };
            let is_leaf = node.left as usize == index && bin == u8::MAX;
            // Children come after their parent, so a walk ends.
            let is_split = node.left as usize > index && (node.left as usize) + 1 < count;
            if !(is_leaf || is_split) || usize::from(feature) >= FEATURES || !node.value.is_finite() {
                return None;
            }
            nodes.push(node);
        }
        let roots = roots?;
        let is_sound =
            base.is_finite() && roots.len() <= TREES && roots.iter().all(|root| (*root as usize) < count);
        is_sound.then_some(Trees { base, nodes, roots })
    }

    /// Returns the number of nodes of all trees.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }
}

/// Sums and numbers of rows per feature and bin.
type Sums = Vec<(f64, u32)>;

/// A leaf of the tree that grows: a part of the row order.
struct Leaf {
    node: usize,
    start: usize,
    end: usize,
    sums: Sums,
    best: Option<Split>,
}

#[derive(Clone, Copy)]
struct Split {
    gain: f64,
    feature: usize,
    bin: usize,
}

/// A model in training.
#[derive(Debug)]
pub struct Training {
    rows: Vec<Labelled>,
    residuals: Vec<f64>,
    trees: Trees,
}

impl Training {
    /// Begins a training.
    #[must_use]
    pub fn new(rows: Vec<Labelled>) -> Training {
        let sum: f64 = rows.iter().map(|row| f64::from(row.label)).sum();
        let base = sum / rows.len().max(1) as f64;
        let residuals = rows.iter().map(|row| f64::from(row.label) - base).collect();
        Training { rows, residuals, trees: Trees { base, ..Trees::default() } }
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Grows the next tree. Returns the model when it is complete.
    pub fn step(&mut self) -> Option<Trees> {
        if self.trees.roots.len() < TREES {
            self.grow();
        }
        (self.trees.roots.len() >= TREES).then(|| core::mem::take(&mut self.trees))
    }

    fn grow(&mut self) {
        let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
        let root = self.trees.nodes.len();
        self.trees.roots.push(root as u32);
        self.trees.nodes.push(Node::leaf(root));
        let sums = self.sums(&order);
        let mut leaves = vec![Leaf { node: root, start: 0, end: order.len(), best: best_split(&sums), sums }];
        while leaves.len() < MOST_LEAVES {
            let gain = |leaf: &Leaf| leaf.best.map_or(0.0, |split| split.gain);
            let Some(index) =
                (0..leaves.len()).max_by(|a, b| gain(&leaves[*a]).total_cmp(&gain(&leaves[*b])))
            else {
                break;
            };
            let Some(split) = leaves[index].best else { break };
            let leaf = leaves.swap_remove(index);
            leaves.extend(self.split(leaf, split, &mut order));
        }
        for leaf in &leaves {
            let (sum, count) = total(&leaf.sums);
            let value = (RATE * sum / (f64::from(count) + 1.0)) as f32;
            self.trees.nodes[leaf.node].value = value;
            for row in &order[leaf.start..leaf.end] {
                self.residuals[*row as usize] -= f64::from(value);
            }
        }
    }

    /// Splits a leaf, and its part of the row order.
    fn split(&mut self, leaf: Leaf, split: Split, order: &mut [u32]) -> [Leaf; 2] {
        let part = &mut order[leaf.start..leaf.end];
        let goes_left = |row: &u32| usize::from(self.rows[*row as usize].row[split.feature]) <= split.bin;
        // Both sides keep the row order.
        let (left, right): (Vec<u32>, Vec<u32>) = part.iter().copied().partition(goes_left);
        part[..left.len()].copy_from_slice(&left);
        part[left.len()..].copy_from_slice(&right);
        let (fewer, is_left) = if left.len() <= right.len() { (&left, true) } else { (&right, false) };
        let sums = self.sums(fewer);
        let rest: Sums =
            leaf.sums.iter().zip(&sums).map(|(all, few)| (all.0 - few.0, all.1 - few.1)).collect();
        let (left_sums, right_sums) = if is_left { (sums, rest) } else { (rest, sums) };
        let child = self.trees.nodes.len();
        self.trees.nodes.extend([Node::leaf(child), Node::leaf(child + 1)]);
        let node = &mut self.trees.nodes[leaf.node];
        (node.feature, node.bin, node.left) = (split.feature as u8, split.bin as u8, child as u32);
        let middle = leaf.start + left.len();
        let make = |node, start, end, sums: Sums| Leaf { node, start, end, best: best_split(&sums), sums };
        [make(child, leaf.start, middle, left_sums), make(child + 1, middle, leaf.end, right_sums)]
    }

    fn sums(&self, rows: &[u32]) -> Sums {
        let mut sums = vec![(0.0, 0); FEATURES * BINS];
        for index in rows {
            let residual = self.residuals[*index as usize];
            for (feature, bin) in self.rows[*index as usize].row.iter().enumerate() {
                let (sum, count) = &mut sums[feature * BINS + usize::from(*bin) % BINS];
                *sum += residual;
                *count += 1;
            }
        }
        sums
    }
}

/// Returns the sum and number of all rows: those of the bins of any feature.
fn total(sums: &Sums) -> (f64, u32) {
    sums[..BINS].iter().fold((0.0, 0), |all, bin| (all.0 + bin.0, all.1 + bin.1))
}

fn best_split(sums: &Sums) -> Option<Split> {
    let (all, rows) = total(sums);
    let score = |sum: f64, count: u32| sum * sum / (f64::from(count) + 1.0);
    let mut best: Option<Split> = None;
    for feature in 0..FEATURES {
        let (mut sum, mut count) = (0.0, 0u32);
        for bin in 0..BINS - 1 {
            let (here, number) = sums[feature * BINS + bin];
            (sum, count) = (sum + here, count + number);
            if number == 0 || (count as usize) < LEAST_ROWS {
                continue;
            }
            if ((rows - count) as usize) < LEAST_ROWS {
                break;
            }
            let gain = score(sum, count) + score(all - sum, rows - count) - score(all, rows);
            if gain > best.map_or(1e-9, |best| best.gain) {
                best = Some(Split { gain, feature, bin });
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;

    fn train(rows: Vec<Labelled>) -> Trees {
        let mut training = Training::new(rows);
        loop {
            if let Some(trees) = training.step() {
                return trees;
            }
        }
    }

    fn rows(count: usize, seed: u64, label: impl Fn(&Row) -> f32) -> Vec<Labelled> {
        let mut random = SplitMix::new(seed);
        (0..count)
            .map(|_| {
                let row: Row = core::array::from_fn(|_| random.below(BINS) as u8);
                Labelled { row, label: label(&row) }
            })
            .collect()
    }

    #[test]
    fn it_learns_steps_and_sums() {
        let label = |row: &Row| {
            let step = if row[3] > 20 { 5.0 } else { 1.0 };
            step + f32::from(row[7]) / 16.0 + if row[1] > 40 && row[2] > 40 { 4.0 } else { 0.0 }
        };
        let trees = train(rows(8000, 1, label));
        let test = rows(1000, 2, label);
        let error: f64 = test.iter().map(|row| (trees.predict(&row.row) - f64::from(row.label)).abs()).sum();
        assert!(error / 1000.0 < 0.25, "mean error {}", error / 1000.0);
        assert!(trees.nodes() <= TREES * (2 * MOST_LEAVES - 1), "{}", trees.nodes());
        for Labelled { row, .. } in &test {
            // One tree after another, from the root to a leaf.
            let leaf = |root: &u32| {
                let mut index = *root;
                loop {
                    let node = &trees.nodes[index as usize];
                    if node.left == index {
                        return f64::from(node.value);
                    }
                    index =
                        if row[usize::from(node.feature)] <= node.bin { node.left } else { node.left + 1 };
                }
            };
            let one_by_one = trees.roots.iter().fold(trees.base, |sum, root| sum + leaf(root));
            assert_eq!([trees.predict(row), trees.predict_abreast::<5>(row)], [one_by_one; 2]);
        }
    }

    #[test]
    fn constant_labels_and_few_rows_need_no_split() {
        for count in [0, 1, 30, 500] {
            let trees = train(rows(count, 3, |_| 7.5));
            let expected = if count == 0 { 0.0 } else { 7.5 };
            assert!((trees.predict(&[9; FEATURES]) - expected).abs() < 1e-6, "{count} rows");
            assert_eq!(trees.nodes(), TREES, "{count} rows");
        }
    }

    #[test]
    fn the_same_rows_give_the_same_trees() {
        let rows = rows(3000, 4, |row| f32::from(row[0]) * f32::from(row[5]) / 100.0);
        assert_eq!(train(rows.clone()), train(rows));
    }
}
