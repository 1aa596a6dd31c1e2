//! The files that SQLite has open in this process, and the holders of their locks.
//!
//! SQLite assumes that a lock belongs to the process: one connection takes it, another one that shares it
//! releases it, each through its own descriptor. So one descriptor of a file, the *holder*, has all of its
//! locks, and each lock operation of SQLite on another descriptor of the file is done with the holder. SQLite
//! closes no descriptor of a file on which one of its connections holds a lock, with one exception: it relies
//! on closing the `-shm` file to release the last lock there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ranges::{Mode, Range, Ranges};
use crate::syscalls::{close_descriptor, errno, lock_descriptor};

/// The identity of a file, whatever its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
}

/// A descriptor of SQLite.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenedFile {
    inode: Inode,
    /// True if another copy of SQLite may have locks on the file.
    is_lockable: bool,
}

/// The open file that has the locks of an inode.
#[derive(Debug, Default)]
struct LockHolder {
    fd: c_int,
    held: Ranges,
}

/// The reason that this module did not set a lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LockRefusal {
    /// The descriptor was opened before the calls were replaced, or its file has no such locks.
    Unknown,
    /// The error number of the system.
    Failed(c_int),
}

#[derive(Debug)]
pub(crate) struct Table {
    /// The descriptors that SQLite has open.
    pub(crate) files: BTreeMap<c_int, OpenedFile>,
    holders: BTreeMap<Inode, LockHolder>,
    /// Descriptors that SQLite has closed, but whose closing would remove locks of another part of the process.
    pub(crate) parked: Vec<(c_int, Inode)>,
    /// The descriptors of [`crate::OwnFile`].
    pub(crate) own: Vec<c_int>,
    /// The parts of files that SQLite has mapped: a mapping keeps the open file, and with it its locks.
    pub(crate) mappings: Vec<Mapping>,
}

/// A mapped part of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) address: usize,
    pub(crate) length: usize,
    pub(crate) access: c_int,
    pub(crate) fd: c_int,
    pub(crate) offset: libc::off_t,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    files: BTreeMap::new(),
    holders: BTreeMap::new(),
    parked: Vec::new(),
    own: Vec::new(),
    mappings: Vec::new(),
});

/// Returns the table. It is consistent even after a panic of another thread.
pub(crate) fn locked() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenedFile {
    /// Describes a descriptor that was just opened; `None` if it is no regular file.
    pub(crate) fn of(fd: c_int, path: &CStr, flags: c_int) -> Option<Self> {
        // Logs, journals and temporary files are never locked.
        let is_log = [&b"-wal"[..], b"-journal"]
            .iter()
            .any(|end| path.to_bytes().ends_with(end));
        Some(Self {
            inode: inode_of(fd)?,
            is_lockable: !is_log && flags & libc::O_EXCL == 0,
        })
    }
}

impl Table {
    /// Queries a conflicting lock of another holder, as `F_GETLK`.
    pub(crate) fn query(&mut self, fd: c_int, range: &mut libc::flock) -> Result<(), LockRefusal> {
        let holder = self.holder_for(fd)?;
        let descriptor = if holder.held.is_empty() {
            fd
        } else {
            holder.fd
        };
        range.l_pid = 0;
        call(descriptor, libc::F_OFD_GETLK, range)
    }

    /// Sets or removes a lock, as `F_SETLK`.
    pub(crate) fn set_lock(&mut self, fd: c_int, range: &libc::flock) -> Result<(), LockRefusal> {
        let mut range = *range;
        range.l_pid = 0;
        let holder = self.holder_for(fd)?;
        let (start, mode) = (range.l_start, mode_of(&range));
        let end = match range.l_len {
            0 => i64::MAX,
            length => start.saturating_add(length),
        };
        if holder.held.is_empty() {
            if mode.is_none() {
                return Ok(());
            }
            holder.fd = fd;
        }
        let mut done = call(holder.fd, libc::F_OFD_SETLK, &mut range);
        // A read-only descriptor cannot hold a write lock: a writable one takes the locks over.
        if done == Err(LockRefusal::Failed(libc::EBADF)) && holder.fd != fd {
            holder.move_to(fd)?;
            done = call(fd, libc::F_OFD_SETLK, &mut range);
        }
        // A file system without these locks rejects the first one.
        if done == Err(LockRefusal::Failed(libc::EINVAL)) && holder.held.is_empty() {
            return Err(LockRefusal::Unknown);
        }
        done?;
        holder.held.set(start, end, mode);
        Ok(())
    }

    fn holder_for(&mut self, fd: c_int) -> Result<&mut LockHolder, LockRefusal> {
        let opened = self.files.get(&fd).ok_or(LockRefusal::Unknown)?;
        Ok(self.holders.entry(opened.inode).or_default())
    }

    /// Removes a descriptor that SQLite closes from the table. Returns `true` if it must stay open.
    pub(crate) fn forget(&mut self, fd: c_int) -> bool {
        let Some(opened) = self.files.remove(&fd) else {
            return false;
        };
        self.release(fd, opened.inode);
        let is_kept = opened.is_lockable && self.others_than(Some(fd)).contains(opened.inode);
        if is_kept {
            self.parked.push((fd, opened.inode));
        }
        self.drop_unused(opened.inode);
        is_kept
    }

    /// Releases the locks of a descriptor that is closed. Another descriptor of SQLite takes them over; without
    /// one they end, as the locks of a process do with its last descriptor.
    fn release(&mut self, fd: c_int, inode: Inode) {
        let Some(holder) = self.holders.get_mut(&inode) else {
            return;
        };
        if holder.fd != fd || holder.held.is_empty() {
            return;
        }
        let mut others = self.files.iter().filter(|(_, file)| file.inode == inode);
        if let Some((other, _)) = others.next()
            && holder.move_to(*other).is_ok()
        {
            return;
        }
        // The descriptor may stay open.
        let _ = call(fd, libc::F_OFD_SETLK, &mut whole(libc::F_UNLCK));
        holder.held.clear();
    }

    fn drop_unused(&mut self, inode: Inode) {
        if !self.files.values().any(|file| file.inode == inode) {
            self.holders.remove(&inode);
        }
    }

    /// Returns a parked descriptor of the file at `path` that was opened in the same way.
    pub(crate) fn unpark(&mut self, path: &CStr, flags: c_int) -> Option<c_int> {
        const PLAIN: c_int = libc::O_ACCMODE
            | libc::O_CREAT
            | libc::O_CLOEXEC
            | libc::O_LARGEFILE
            | libc::O_NOFOLLOW;
        if self.parked.is_empty() || flags & !PLAIN != 0 {
            return None;
        }
        let inode = inode_at(path)?;
        let access = flags & libc::O_ACCMODE;
        let at = self.parked.iter().position(|(fd, parked)| {
            // SAFETY: the descriptor is open.
            let opened = unsafe { libc::fcntl(*fd, libc::F_GETFL) };
            *parked == inode && opened & libc::O_ACCMODE == access
        })?;
        let (fd, _) = self.parked.swap_remove(at);
        let is_lockable = true;
        self.files.insert(fd, OpenedFile { inode, is_lockable });
        Some(fd)
    }

    /// Closes the parked descriptors of files that no other part of the process has open.
    ///
    /// Another thread may open such a file and lock it between the check and the close; its lock would be lost.
    /// The window is a few microseconds. Only descriptors that are never closed would avoid it.
    pub(crate) fn close_parked(&mut self) {
        if self.parked.is_empty() {
            return;
        }
        let others = self.others_than(None);
        self.parked.retain(|(fd, inode)| {
            let is_kept = others.contains(*inode);
            if !is_kept {
                close_descriptor(*fd);
            }
            is_kept
        });
    }

    /// Returns the files of all descriptors except this one and those of the table.
    fn others_than(&self, closing: Option<c_int>) -> Others {
        let Ok(all) = std::fs::read_dir("/proc/self/fd") else {
            return Others::Unknown;
        };
        let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_ours = |fd: &c_int| {
            Some(*fd) == closing
                || self.files.contains_key(fd)
                || self.parked.iter().any(|(parked, _)| parked == fd)
        };
        Others::Known(
            numbers
                .filter(|fd| !is_ours(fd))
                .filter_map(inode_of)
                .collect(),
        )
    }

    /// Gives this process, which was just forked, open files of its own in place of those of its parent: with
    /// its parent's read locks, and without its write locks.
    pub(crate) fn separate_from_parent(&mut self) {
        // This process has no other locks yet, so the closes remove none.
        for (fd, _) in self.parked.drain(..) {
            // SAFETY: the table owns it.
            unsafe { libc::close(fd) };
        }
        for fd in self.files.keys().chain(&self.own) {
            crate::fork::reopen(*fd);
        }
        self.mappings.iter().for_each(crate::fork::map_again);
        for holder in self.holders.values_mut() {
            let fd = holder.fd;
            holder.held.retain(|range| {
                range.mode == Mode::Shared
                    && call(fd, libc::F_OFD_SETLK, &mut flock_of(range)).is_ok()
            });
        }
    }
}

impl LockHolder {
    /// Makes another descriptor the holder. Only read locks can be moved: both descriptors hold them for a
    /// moment, so that no other process can take them in between.
    fn move_to(&mut self, fd: c_int) -> Result<(), LockRefusal> {
        for range in self.held.iter() {
            call(fd, libc::F_OFD_SETLK, &mut flock_of(range))?;
        }
        let old = std::mem::replace(&mut self.fd, fd);
        call(old, libc::F_OFD_SETLK, &mut whole(libc::F_UNLCK))
    }
}

/// The files that other parts of this process have open.
enum Others {
    Known(BTreeSet<Inode>),
    /// `/proc` is missing.
    Unknown,
}

impl Others {
    fn contains(&self, inode: Inode) -> bool {
        match self {
            Self::Known(inodes) => inodes.contains(&inode),
            Self::Unknown => true,
        }
    }
}

fn call(fd: c_int, command: c_int, range: &mut libc::flock) -> Result<(), LockRefusal> {
    match lock_descriptor(fd, command, range) {
        0 => Ok(()),
        _ => Err(LockRefusal::Failed(errno())),
    }
}

fn mode_of(range: &libc::flock) -> Option<Mode> {
    match c_int::from(range.l_type) {
        libc::F_RDLCK => Some(Mode::Shared),
        libc::F_WRLCK => Some(Mode::Exclusive),
        _ => None,
    }
}

fn flock_of(range: &Range) -> libc::flock {
    let kind = match range.mode {
        Mode::Shared => libc::F_RDLCK,
        Mode::Exclusive => libc::F_WRLCK,
    };
    libc::flock {
        l_start: range.start,
        l_len: match range.end {
            i64::MAX => 0,
            end => end - range.start,
        },
        ..whole(kind)
    }
}

fn whole(kind: c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Returns the identity of the file of a descriptor; `None` if it is no regular file.
fn inode_of(fd: c_int) -> Option<Inode> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the structure is fully written if the call succeeds, and only then read.
    let found = unsafe {
        match libc::fstat(fd, found.as_mut_ptr()) {
            0 => found.assume_init(),
            _ => return None,
        }
    };
    regular(&found)
}

/// Returns the identity of the file at a path; `None` if the path is a link.
fn inode_at(path: &CStr) -> Option<Inode> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: as above; the path ends in a zero byte.
    let found = unsafe {
        match libc::lstat(path.as_ptr(), found.as_mut_ptr()) {
            0 => found.assume_init(),
            _ => return None,
        }
    };
    regular(&found)
}

fn regular(found: &libc::stat) -> Option<Inode> {
    (found.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(Inode {
        device: found.st_dev,
        number: found.st_ino,
    })
}
