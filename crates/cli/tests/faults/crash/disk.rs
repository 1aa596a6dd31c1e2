//! A disk that can lose power: replays the log of a process, and returns the files in the states in which they could be
//! afterwards.
//!
//! Synced data is present. Of unsynced data, any part may be: all, nothing, or some sectors of some writes, in any
//! order. A name is durable once its folder is synced. SQLite assumes no more, except for what it calls powersafe
//! overwrite: an interrupted write does not change the bytes next to it.

use std::collections::{BTreeMap, HashMap};

use crate::crash::shim::Event;
use crate::support::histories::Random;

const SECTOR: usize = 512;

/// The files of a folder by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The state of unsynced data after a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced {
    Lost,
    Kept,
    /// Some writes are present and others are not.
    SomeWrites,
    /// Of each write some sectors are present, and some sectors of an extended file contain junk.
    SomeSectors,
}

impl Unsynced {
    pub const ALL: [Self; 4] = [Self::Lost, Self::Kept, Self::SomeWrites, Self::SomeSectors];
}

#[derive(Clone, Debug)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Length(usize),
}

#[derive(Clone, Default)]
struct Inode {
    synced: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Rename {
    Add(String, usize),
    Remove(String),
    Move(String, String),
}

#[derive(Default)]
pub struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    pending_names: Vec<Rename>,
    /// `None` stands for the folder itself.
    open: HashMap<i32, Option<usize>>,
}

impl Disk {
    pub fn play(&mut self, event: &Event) {
        match event {
            Event::Open {
                fd,
                name,
                is_new,
                cuts,
            } => self.open(*fd, name, *is_new, *cuts),
            Event::Close(fd) => {
                self.open.remove(fd);
            }
            Event::Write { fd, at, bytes } => self.change(
                *fd,
                Change::Write {
                    at: *at,
                    bytes: bytes.clone(),
                },
            ),
            Event::Truncate { fd, length } => self.change(*fd, Change::Length(*length)),
            Event::Sync(fd) => match self.open[fd] {
                Some(inode) => self.inodes[inode].sync(),
                None => {
                    self.pending_names.clear();
                    self.synced_names.clone_from(&self.names);
                }
            },
            Event::Remove(name) => self.rename(Rename::Remove(name.clone())),
            Event::Move { from, to } => self.rename(Rename::Move(from.clone(), to.clone())),
            Event::Mark(_) => {}
        }
    }

    fn open(&mut self, fd: i32, name: &str, is_new: bool, cuts: bool) {
        if name.is_empty() {
            self.open.insert(fd, None);
            return;
        }
        // A file that was not created by opening it is first seen when it is opened.
        let is_new = is_new || !self.names.contains_key(name);
        if is_new {
            self.inodes.push(Inode::default());
            self.rename(Rename::Add(name.to_owned(), self.inodes.len() - 1));
        }
        self.open.insert(fd, Some(self.names[name]));
        if cuts && !is_new {
            self.change(fd, Change::Length(0));
        }
    }

    fn change(&mut self, fd: i32, change: Change) {
        let inode = self.open[&fd].expect("a file");
        self.inodes[inode].pending.push(change);
    }

    fn rename(&mut self, change: Rename) {
        apply(&mut self.names, &change);
        self.pending_names.push(change);
    }

    /// Returns the files in a possible state after a power loss now. With `Lost` no unsynced name is present, with
    /// `Kept` each one is; else a prefix of them is, since file systems keep their order.
    pub fn after_loss(&self, files: Unsynced, names: Unsynced, random: &mut Random) -> Files {
        let mut found = self.synced_names.clone();
        let kept = match names {
            Unsynced::Lost => 0,
            Unsynced::Kept => self.pending_names.len(),
            _ => random.below(self.pending_names.len() as u64 + 1) as usize,
        };
        for change in &self.pending_names[..kept] {
            apply(&mut found, change);
        }
        let bytes = |inode: usize, random: &mut Random| self.inodes[inode].found(files, random);
        found
            .into_iter()
            .map(|(name, inode)| (name, bytes(inode, random)))
            .collect()
    }
}

fn apply(names: &mut BTreeMap<String, usize>, change: &Rename) {
    match change {
        Rename::Add(name, inode) => {
            names.insert(name.clone(), *inode);
        }
        Rename::Remove(name) => {
            names.remove(name);
        }
        Rename::Move(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
    }
}

impl Inode {
    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.synced);
        }
    }

    fn found(&self, how: Unsynced, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        for change in &self.pending {
            match how {
                Unsynced::Lost => {}
                Unsynced::Kept => change.apply(&mut bytes),
                Unsynced::SomeWrites if random.one_in(2) => change.apply(&mut bytes),
                Unsynced::SomeWrites => {}
                Unsynced::SomeSectors => change.apply_sectors(&mut bytes, random),
            }
        }
        bytes
    }
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes } => {
                let end = at + bytes.len();
                file.resize(file.len().max(end), 0);
                file[*at..end].copy_from_slice(bytes);
            }
            Self::Length(length) => file.resize(*length, 0),
        }
    }

    fn apply_sectors(&self, file: &mut Vec<u8>, random: &mut Random) {
        let Self::Write { at, bytes } = self else {
            if random.one_in(2) {
                self.apply(file);
            }
            return;
        };
        let was_long = file.len();
        let (mut from, end) = (*at, at + bytes.len());
        while from < end {
            // Sectors of the file, wherever the write begins within a sector.
            let to = end.min((from / SECTOR + 1) * SECTOR);
            let mut part = bytes[from - at..to - at].to_vec();
            let is_there = !random.one_in(3);
            let is_junk = !is_there && from >= was_long && random.one_in(2);
            if is_junk {
                part.iter_mut()
                    .for_each(|byte| *byte = random.below(256) as u8);
            }
            if is_there || is_junk {
                let write = Self::Write {
                    at: from,
                    bytes: part,
                };
                write.apply(file);
            }
            from = to;
        }
    }
}

#[test]
fn the_disk_loses_what_was_not_synced() {
    let open = |fd, name: &str| Event::Open {
        fd,
        name: name.into(),
        is_new: fd > 0,
        cuts: false,
    };
    let write = |at, bytes: &[u8]| Event::Write {
        fd: 1,
        at,
        bytes: bytes.to_vec(),
    };
    let mut disk = Disk::default();
    let mut random = Random::new(1);
    let mut found = |disk: &Disk, how| disk.after_loss(how, how, &mut random);
    for event in [open(0, ""), open(1, "a"), write(0, b"one"), Event::Sync(1)] {
        disk.play(&event);
    }
    assert!(found(&disk, Unsynced::Lost).is_empty(), "its name is lost");
    disk.play(&Event::Sync(0));
    assert_eq!(found(&disk, Unsynced::Lost)["a"], b"one");
    disk.play(&write(2, b"long"));
    disk.play(&Event::Move {
        from: "a".into(),
        to: "b".into(),
    });
    assert_eq!(found(&disk, Unsynced::Lost)["a"], b"one");
    assert_eq!(found(&disk, Unsynced::Kept)["b"], b"onlong");
    let torn: Vec<u8> = vec![7; 4 * SECTOR];
    disk.play(&write(100, &torn));
    let some: Vec<Vec<u8>> = (0..50)
        .map(|_| {
            found(&disk, Unsynced::SomeSectors)
                .into_values()
                .next()
                .unwrap()
        })
        .collect();
    let whole = 100 + torn.len();
    assert!(some.iter().any(|bytes| bytes.len() < whole), "cut off");
    let holds = |bytes: &Vec<u8>, sector: usize| bytes.get(sector * SECTOR + 200) == Some(&7);
    assert!(some.iter().any(|bytes| !holds(bytes, 1) && holds(bytes, 2)));
}
