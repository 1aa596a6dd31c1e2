//! Parents before children.

/// Returns loops in an order in which each comes after its parent, otherwise in their own order. The flag is true if
/// the link to the parent was cut to break a cycle: the link of the loop that comes first.
pub(super) fn parents_first(parents: &[Option<usize>]) -> Vec<(usize, bool)> {
    let mut parents = parents.to_vec();
    let mut cut = vec![false; parents.len()];
    // The walk that visited each loop; a walk that reaches one of its own loops found a cycle.
    let mut seen = vec![None; parents.len()];
    let mut order = Vec::with_capacity(parents.len());
    for start in 0..parents.len() {
        let (mut walk, mut at) = (Vec::new(), Some(start));
        while let Some(here) = at {
            match seen[here] {
                None => {
                    seen[here] = Some(start);
                    walk.push(here);
                    at = parents[here];
                }
                Some(walker) if walker == start => {
                    at = None;
                    let from = walk.iter().position(|other| *other == here).unwrap_or(0);
                    let Some(nth) = (from..walk.len()).min_by_key(|nth| walk[*nth]) else {
                        break;
                    };
                    let first = walk[nth];
                    (cut[first], parents[first]) = (true, None);
                    // The loops beyond the cut now descend from this one.
                    walk[from..].rotate_left(nth + 1 - from);
                }
                Some(_) => at = None,
            }
        }
        order.extend(walk.into_iter().rev());
    }
    order.into_iter().map(|at| (at, cut[at])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(parents: &[Option<usize>]) -> Vec<(usize, bool)> {
        let order = parents_first(parents);
        let place = |at: usize| order.iter().position(|(other, _)| *other == at).unwrap();
        assert_eq!(order.len(), parents.len());
        for (at, cut) in &order {
            if let (Some(parent), false) = (parents[*at], cut) {
                assert!(place(parent) < place(*at), "{parents:?}: {order:?}");
            }
        }
        order
    }

    #[test]
    fn only_children_that_stand_too_early_move() {
        let order = check(&[Some(2), None, Some(1), None, Some(0)]);
        let loops: Vec<usize> = order.iter().map(|(at, _)| *at).collect();
        assert_eq!(loops, [1, 2, 0, 3, 4]);
    }

    #[test]
    fn a_cycle_is_cut_at_its_first_loop() {
        assert_eq!(check(&[Some(0)]), [(0, true)]);
        let order = check(&[Some(2), Some(3), Some(1), Some(2)]);
        assert_eq!(order, [(1, true), (2, false), (3, false), (0, false)]);
    }

    #[test]
    fn any_links_become_an_order() {
        for links in 0..6usize.pow(5) {
            let parent = |nth: u32| Some(links / 6usize.pow(nth) % 6).filter(|at| *at < 5);
            let parents: Vec<Option<usize>> = (0..5).map(parent).collect();
            let cuts = check(&parents).iter().filter(|(_, cut)| *cut).count();
            assert_eq!(cuts, cycles(&parents), "{parents:?}");
        }
        let chain: Vec<_> = (1..100_000).map(Some).chain([None]).collect();
        assert_eq!(parents_first(&chain)[0], (99_999, false));
    }

    fn cycles(parents: &[Option<usize>]) -> usize {
        let mut smallest = std::collections::BTreeSet::<usize>::new();
        for start in 0..parents.len() {
            let mut at = Some(start);
            let mut way = Vec::new();
            for _ in 0..2 * parents.len() {
                way.extend(at);
                at = at.and_then(|at| parents[at]);
            }
            if at.is_some() {
                smallest.extend(way[parents.len()..].iter().min());
            }
        }
        smallest.len()
    }
}
