//! Stable sorting, compiled once: the standard library's takes 3 KB for each type and order. It may also panic if an order is
//! inconsistent, which those of some template values are.

use std::cmp::Ordering;

/// Sorts by an order.
pub fn by<T>(list: &mut Vec<T>, mut compare: impl FnMut(&T, &T) -> Ordering) {
    let order = order(list.len(), &mut |a, b| match (list.get(a), list.get(b)) {
        (Some(a), Some(b)) => compare(a, b),
        _ => Ordering::Equal,
    });
    let mut items: Vec<Option<T>> = list.drain(..).map(Some).collect();
    list.extend(order.into_iter().filter_map(|at| items.get_mut(at)?.take()));
}

/// Sorts by a key, which is computed several times for each item.
pub fn by_key<T, K: Ord>(list: &mut Vec<T>, key: impl Fn(&T) -> K) {
    by(list, |a, b| key(a).cmp(&key(b)));
}

/// For each place in the sorted list, the index of its item in the unsorted one: a merge sort.
fn order(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    let mut width = 1;
    while width < len {
        let mut merged = Vec::with_capacity(len);
        for pair in order.chunks(width * 2) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let ([first, left_rest @ ..], [second, right_rest @ ..]) = (left, right) {
                if compare(*first, *second) == Ordering::Greater {
                    merged.push(*second);
                    right = right_rest;
                } else {
                    merged.push(*first);
                    left = left_rest;
                }
            }
            merged.extend(left);
            merged.extend(right);
        }
        order = merged;
        width *= 2;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_library_sorts() {
        for len in 0..100u32 {
            let mut ours: Vec<(u32, String)> = (0..len).map(|i| (i * 37 % 11, i.to_string())).collect();
            let mut theirs = ours.clone();
            by_key(&mut ours, |(n, _)| *n);
            theirs.sort_by_key(|(n, _)| *n);
            assert_eq!(ours, theirs);
            by(&mut ours, |a, b| b.cmp(a));
            theirs.sort_by(|a, b| b.cmp(a));
            assert_eq!(ours, theirs);
        }
    }

    /// The library's would panic.
    #[test]
    fn what_has_no_order_stays_whole() {
        let mut random = 1u32;
        for len in 0..300 {
            let mut list: Vec<u32> = (0..len).collect();
            by(&mut list, |_, _| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                [Ordering::Less, Ordering::Equal, Ordering::Greater][(random >> 16) as usize % 3]
            });
            list.sort_unstable();
            assert_eq!(list, (0..len).collect::<Vec<_>>());
        }
    }
}
