//! The system's own copy of SQLite, loaded in addition to the linked one.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

type RowCallback =
    unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

/// The functions of `libsqlite3.so.0`.
#[derive(Debug)]
pub struct SystemSqlite {
    open: unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, *const c_char) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
    exec: unsafe extern "C" fn(
        *mut c_void,
        *const c_char,
        Option<RowCallback>,
        *mut c_void,
        *mut *mut c_char,
    ) -> c_int,
    errmsg: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    busy_timeout: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
}

/// An error of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteFailure {
    /// SQLite's primary result code.
    pub code: i32,
    /// The message of the library.
    pub message: String,
}

impl SqliteFailure {
    /// True if another connection has the database locked (`SQLITE_BUSY`, `SQLITE_LOCKED`).
    pub fn is_busy(&self) -> bool {
        [5, 6].contains(&self.code)
    }
}

impl SystemSqlite {
    /// Returns the library; `None` if the system has none.
    pub fn load() -> Option<&'static Self> {
        static LOADED: OnceLock<Option<SystemSqlite>> = OnceLock::new();
        LOADED.get_or_init(Self::open_library).as_ref()
    }

    /// Returns the library; `None`, after printing so, if the system has none.
    ///
    /// # Panics
    /// If the system has none and `LOOPSTORE_NEEDS_ALL` is set.
    pub fn needed() -> Option<&'static Self> {
        let found = Self::load();
        if found.is_none() {
            let line = "SKIPPED: the system has no libsqlite3.so.0 (Debian: libsqlite3-0)";
            assert!(std::env::var_os("LOOPSTORE_NEEDS_ALL").is_none(), "{line}");
            eprintln!("{line}");
        }
        found
    }

    fn open_library() -> Option<Self> {
        // With RTLD_DEEPBIND the library calls its own functions and not those of the program.
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
        // SAFETY: the name ends in a zero byte; the library has no constructors that touch the program.
        let library = unsafe { libc::dlopen(c"libsqlite3.so.0".as_ptr(), flags) };
        let find = |name: &CStr| {
            // SAFETY: the library stays loaded, and the name ends in a zero byte.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        if library.is_null() {
            return None;
        }
        // SAFETY: these are the types of these functions in sqlite3.h.
        unsafe {
            Some(Self {
                open: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(
                        *const c_char,
                        *mut *mut c_void,
                        c_int,
                        *const c_char,
                    ) -> c_int,
                >(find(c"sqlite3_open_v2")?),
                close: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(
                    find(c"sqlite3_close_v2")?,
                ),
                exec: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(
                        *mut c_void,
                        *const c_char,
                        Option<RowCallback>,
                        *mut c_void,
                        *mut *mut c_char,
                    ) -> c_int,
                >(find(c"sqlite3_exec")?),
                errmsg: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void) -> *const c_char,
                >(find(c"sqlite3_errmsg")?),
                busy_timeout: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
                >(find(c"sqlite3_busy_timeout")?),
            })
        }
    }

    /// Opens an existing database for reading and writing.
    ///
    /// # Errors
    /// If the library refuses.
    pub fn connect(&'static self, path: &Path) -> Result<SystemConnection, SqliteFailure> {
        const READ_WRITE: c_int = 2;
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| SqliteFailure {
            code: 14,
            message: error.to_string(),
        })?;
        let mut handle = ptr::null_mut();
        // SAFETY: the path ends in a zero byte, and the place for the handle is valid.
        let code = unsafe { (self.open)(path.as_ptr(), &mut handle, READ_WRITE, ptr::null()) };
        let connection = SystemConnection {
            library: self,
            handle,
        };
        connection.checked(code)?;
        Ok(connection)
    }
}

/// A connection of the system's copy.
#[derive(Debug)]
pub struct SystemConnection {
    library: &'static SystemSqlite,
    handle: *mut c_void,
}

// SAFETY: the library is compiled with its mutexes (Debian's default, THREADSAFE=1), and a connection may be
// moved to another thread.
unsafe impl Send for SystemConnection {}

impl SystemConnection {
    /// Sets for how many milliseconds a statement waits for locks.
    pub fn set_busy_timeout(&self, milliseconds: i32) {
        // SAFETY: the handle is open.
        unsafe { (self.library.busy_timeout)(self.handle, milliseconds) };
    }

    /// Runs statements and returns the rows of all, NULL as an empty text.
    ///
    /// # Errors
    /// If one of them fails.
    pub fn run(&self, sql: &str) -> Result<Vec<Vec<String>>, SqliteFailure> {
        let sql = CString::new(sql).map_err(|error| SqliteFailure {
            code: 1,
            message: error.to_string(),
        })?;
        let mut rows: Vec<Vec<String>> = Vec::new();
        // SAFETY: the handle is open, the text ends in a zero byte, and `take_row` gets the rows.
        let code = unsafe {
            (self.library.exec)(
                self.handle,
                sql.as_ptr(),
                Some(take_row),
                ptr::from_mut(&mut rows).cast(),
                ptr::null_mut(),
            )
        };
        self.checked(code)?;
        Ok(rows)
    }

    fn checked(&self, code: c_int) -> Result<(), SqliteFailure> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the handle is open (or null, for which the library has a text too), and the text is copied
        // before the next call.
        let message = unsafe { CStr::from_ptr((self.library.errmsg)(self.handle)) };
        Err(SqliteFailure {
            code: code & 0xFF,
            message: message.to_string_lossy().into_owned(),
        })
    }
}

impl Drop for SystemConnection {
    fn drop(&mut self) {
        // SAFETY: nobody uses the handle after this.
        unsafe { (self.library.close)(self.handle) };
    }
}

unsafe extern "C" fn take_row(
    rows: *mut c_void,
    count: c_int,
    values: *mut *mut c_char,
    _names: *mut *mut c_char,
) -> c_int {
    // SAFETY: `run` passes its own vector, which nobody else uses during the call.
    let rows = unsafe { &mut *rows.cast::<Vec<Vec<String>>>() };
    let count = usize::try_from(count).unwrap_or(0);
    let row = (0..count).map(|at| {
        // SAFETY: the library passes this number of texts; each is NULL or ends in a zero byte.
        unsafe {
            let value = *values.add(at);
            match value.is_null() {
                true => String::new(),
                false => CStr::from_ptr(value).to_string_lossy().into_owned(),
            }
        }
    });
    rows.push(row.collect());
    0
}
