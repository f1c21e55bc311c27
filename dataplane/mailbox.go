package dataplane

import (
	"sync"
	"sync/atomic"
)

// mailbox carries commands to a lane. The lane looks at pending, one load a batch; the rest is behind a lock that is
// taken only when there is mail.
type mailbox struct {
	pending atomic.Bool
	mu      sync.Mutex
	queue   []func(*lane)
	closed  bool
}

// post appends a command and returns false when the lane has ended.
func (m *mailbox) post(f func(*lane)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.queue = append(m.queue, f)
	m.pending.Store(true)
	return true
}

// run carries out what is there, in order, on the lane's thread.
func (m *mailbox) run(l *lane) {
	m.mu.Lock()
	q := m.queue
	m.queue = nil
	m.pending.Store(false)
	m.mu.Unlock()
	for _, f := range q {
		f(l)
	}
}

// close carries out what is there and refuses what comes.
func (m *mailbox) close(l *lane) {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.run(l)
}
