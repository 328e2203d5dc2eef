//! What a root knows of its commits: whether what they were given is on the disk.

/// How far commits have come. Each state but the first has what is said of it in common with those after it.
///
/// No state is left for an earlier one, but for `Unsettled`, which a sync of the whole root ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// The changes that an earlier run left were not looked for, and nothing that outlives the boot was written.
    Unread,
    /// Everything is on the disk, in the journal, or in the list of changes that wait for their file system.
    Clean,
    /// A change failed that a later run may be able to make. Nothing that was written since is marked as done, and the next stage
    /// that can write repeats the work.
    Unwritten,
    /// Beside that, something that was written without a journal may not have reached the disk: marks wait for a sync.
    Unsettled,
}

/// The journal as a root knows it.
pub(super) struct Journal {
    state: State,
    /// Paths that commits have written.
    done: Vec<String>,
    /// Marks that were made without waiting for the disk.
    unsynced_marks: Vec<String>,
}

impl Journal {
    /// A journal that was not looked for.
    pub(super) fn new() -> Journal {
        Journal { state: State::Unread, done: Vec::new(), unsynced_marks: Vec::new() }
    }

    /// Notes that the changes that an earlier run left were looked for.
    pub(super) fn note_read(&mut self) {
        self.state = self.state.max(State::Clean);
    }

    /// Whether the changes that an earlier run left were looked for.
    pub(super) fn is_read(&self) -> bool {
        self.state > State::Unread
    }

    /// Notes that a change failed that a later run may be able to make.
    pub(super) fn note_unwritten(&mut self) {
        self.state = self.state.max(State::Unwritten);
    }

    /// Whether a change failed that a later run may be able to make.
    pub(super) fn is_unwritten(&self) -> bool {
        self.state >= State::Unwritten
    }

    /// Notes that a change failed, and that something may not have reached the disk.
    pub(super) fn note_unsettled(&mut self) {
        self.state = State::Unsettled;
    }

    /// Whether something may not have reached the disk.
    pub(super) fn is_unsettled(&self) -> bool {
        self.state == State::Unsettled
    }

    /// Notes that a sync has brought everything that was written to the disk.
    pub(super) fn note_settled(&mut self) {
        self.state = self.state.min(State::Unwritten);
    }

    /// Notes that a path was written.
    pub(super) fn note_done(&mut self, path: &str) {
        self.done.push(path.to_owned());
    }

    /// Forgets the paths that were written after the first `count`, because they are removed again.
    pub(super) fn forget_done_after(&mut self, count: usize) {
        self.done.truncate(count);
    }

    /// The paths that were written, in order.
    pub(super) fn done(&self) -> &[String] {
        &self.done
    }

    /// Notes marks that are made without waiting for the disk.
    pub(super) fn note_unsynced(&mut self, marks: impl IntoIterator<Item = String>) {
        self.unsynced_marks.extend(marks);
    }

    /// The marks that were made without waiting for the disk. They are no longer known.
    pub(super) fn take_unsynced(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unsynced_marks)
    }
}
