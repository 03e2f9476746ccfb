//! Which pages of the cache are whose: free, of sequences, or kept because a later prompt may begin with what they hold.

use std::collections::{BTreeMap, HashMap};

/// Tokens of a page: keys that attention takes together.
pub(super) const PAGE: usize = elinvar::kernels::attention::paged::PAGE;

/// What a page holds: its tokens, and what comes before them, by the number of the page before. So texts with one beginning, and no others, share pages.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Content {
    before: u64,
    tokens: [u32; PAGE],
}

/// The number of what comes before the first page of a text without adapter.
pub(super) const START: u64 = 0;

struct Page {
    /// Sequences that have it.
    users: usize,
    /// What it holds, and the number by which pages after it name it, once that is known to all.
    known: Option<(Content, u64)>,
    /// When it was last given back.
    since: u64,
}

/// The pages of a cache.
pub(super) struct Pool {
    pages: Vec<Page>,
    /// Pages that hold nothing of use.
    free: Vec<u32>,
    /// Pages that are known and of no sequence, by when they were given back.
    idle: BTreeMap<u64, u32>,
    known: HashMap<Content, u32>,
    clock: u64,
}

impl Pool {
    pub(super) fn new(count: usize) -> Self {
        let pages = (0..count).map(|_| Page { users: 0, known: None, since: 0 }).collect();
        Self { pages, free: (0..count as u32).rev().collect(), idle: BTreeMap::new(), known: HashMap::new(), clock: START }
    }

    /// All pages.
    pub(super) fn total(&self) -> usize {
        self.pages.len()
    }

    /// Pages that can be taken.
    pub(super) fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// Pages of no sequence that hold the beginning of a text.
    pub(super) fn idle(&self) -> usize {
        self.idle.len()
    }

    /// A page to write, of those given back the one that has been idle longest.
    pub(super) fn take(&mut self) -> Option<u32> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => {
                let (_, page) = self.idle.pop_first()?;
                if let Some((content, _)) = self.pages[page as usize].known.take() {
                    self.known.remove(&content);
                }
                page
            }
        };
        self.pages[page as usize].users = 1;
        Some(page)
    }

    /// Gives pages back, in the order of their text: the last are forgotten first.
    pub(super) fn give_back(&mut self, pages: &[u32]) {
        for &number in pages.iter().rev() {
            let page = &mut self.pages[number as usize];
            page.users -= 1;
            if page.users > 0 {
                continue;
            }
            if page.known.is_some() {
                self.clock += 1;
                page.since = self.clock;
                self.idle.insert(self.clock, number);
            } else {
                self.free.push(number);
            }
        }
    }

    /// The page that holds these tokens after the page of number `before`, and its own number.
    pub(super) fn find(&self, before: u64, tokens: [u32; PAGE]) -> Option<(u32, u64)> {
        let page = *self.known.get(&Content { before, tokens })?;
        self.pages[page as usize].known.as_ref().map(|(_, number)| (page, *number))
    }

    /// A number for what comes before the first page of texts that share no pages with others.
    pub(super) fn start(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The pages that hold the beginning of `tokens`, whole pages of it alone, after `before`.
    pub(super) fn beginning(&self, mut before: u64, tokens: &[u32]) -> Vec<u32> {
        let find = |&tokens: &[u32; PAGE]| {
            let (page, number) = self.find(before, tokens)?;
            before = number;
            Some(page)
        };
        tokens.as_chunks::<PAGE>().0.iter().map_while(find).collect()
    }

    /// Pages of `pages` that no sequence has.
    pub(super) fn idle_among(&self, pages: &[u32]) -> usize {
        pages.iter().filter(|&&page| self.pages[page as usize].users == 0).count()
    }

    /// Makes a page another sequence's too.
    pub(super) fn share(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        if page.users == 0 {
            self.idle.remove(&page.since);
        }
        page.users += 1;
    }

    /// Makes known what a full page holds, after the page of number `before`; gives the number for what comes after it.
    pub(super) fn publish(&mut self, page: u32, before: u64, tokens: [u32; PAGE]) -> u64 {
        let content = Content { before, tokens };
        if let Some((_, number)) = self.known.get(&content).and_then(|&page| self.pages[page as usize].known.as_ref()) {
            return *number;
        }
        self.clock += 1;
        self.known.insert(content.clone(), page);
        self.pages[page as usize].known = Some((content, self.clock));
        self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(seed: u32) -> [u32; PAGE] {
        std::array::from_fn(|i| seed * 100 + i as u32)
    }

    #[test]
    fn beginnings_are_found_until_their_pages_are_needed() {
        let mut pool = Pool::new(4);
        let pages: Vec<u32> = (0..3).map(|_| pool.take().unwrap()).collect();
        let text: Vec<u32> = (1..4).flat_map(tokens).collect();
        let mut before = START;
        for (&page, &tokens) in pages.iter().zip(text.as_chunks().0) {
            before = pool.publish(page, before, tokens);
        }
        assert_eq!((pool.beginning(START, &text), pool.beginning(START, &text[..PAGE + 5])), (pages.clone(), pages[..1].to_vec()));
        // The same tokens after others are another text.
        assert!(pool.beginning(START, &text[PAGE..]).is_empty());
        pool.give_back(&pages);
        assert_eq!((pool.available(), pool.idle(), pool.idle_among(&pages)), (4, 3, 3));
        // The free page first, then the end of the text.
        let others = [pool.take().unwrap(), pool.take().unwrap()];
        assert!(!pages.contains(&others[0]) && others[1] == pages[2]);
        let found = pool.beginning(START, &text);
        assert_eq!(found, pages[..2]);
        found.iter().for_each(|&page| pool.share(page));
        assert_eq!((pool.available(), pool.take()), (0, None));
        // Two sequences have it; it is idle when both gave it back.
        found.iter().for_each(|&page| pool.share(page));
        pool.give_back(&found);
        assert_eq!(pool.available(), 0);
        pool.give_back(&found);
        pool.give_back(&others);
        assert_eq!((pool.available(), pool.idle(), pool.total()), (4, 2, 4));
    }

    #[test]
    fn a_text_that_two_sequences_computed_is_known_once() {
        let mut pool = Pool::new(4);
        let [a, b, c] = [0; 3].map(|_| pool.take().unwrap());
        let number = pool.publish(a, START, tokens(1));
        assert_eq!(pool.publish(b, START, tokens(1)), number);
        // What follows either is found after both.
        pool.publish(c, number, tokens(2));
        assert_eq!(pool.beginning(START, &[tokens(1), tokens(2)].concat()), [a, c]);
        pool.give_back(&[b]);
        assert_eq!((pool.idle(), pool.available()), (0, 2));
    }
}
