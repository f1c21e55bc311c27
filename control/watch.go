package control

import (
	"slices"
)

// Change says what happened to a job.
type Change uint8

// Changes of a job.
const (
	Listed    Change = iota // it was there when the watch began
	Installed               // it came
	Changed                 // a worker was added
	Removed                 // it went
)

// Event is one change of the NIC's jobs.
type Event struct {
	Change     Change
	Job        string
	Tenant     string
	Generation uint64 // of the change; events come in this order
	Why        string
}

// watchDepth is how many events a watch may be behind.
const watchDepth = 4096

// Watch is a view of the changes from one moment on: first the jobs that were there,
// then every change once, in order.
type Watch struct {
	jobs   *Jobs
	events chan Event
	behind bool // jobs.mu is held
}

// Watch begins a watch. Close it.
func (j *Jobs) Watch() *Watch {
	j.mu.Lock()
	defer j.mu.Unlock()
	names := make([]string, 0, len(j.records))
	for name := range j.records {
		names = append(names, name)
	}
	slices.Sort(names)
	w := &Watch{jobs: j, events: make(chan Event, len(names)+watchDepth)}
	for _, name := range names {
		w.events <- Event{Listed, name, j.records[name].asked.Tenant, j.records[name].generation, "there when the watch began"}
	}
	j.watchers[w] = struct{}{}
	return w
}

// Events gives the events. It is closed when the watch is, or when its reader fell
// so far behind that events would be lost: Behind tells which.
func (w *Watch) Events() <-chan Event { return w.events }

// Behind is true when the watch ended since its reader was too slow.
func (w *Watch) Behind() bool {
	w.jobs.mu.Lock()
	defer w.jobs.mu.Unlock()
	return w.behind
}

// Close ends the watch.
func (w *Watch) Close() {
	w.jobs.mu.Lock()
	defer w.jobs.mu.Unlock()
	w.end()
}

// end is Close with jobs.mu held.
func (w *Watch) end() {
	if _, open := w.jobs.watchers[w]; open {
		delete(w.jobs.watchers, w)
		close(w.events)
	}
}

// tell gives an event to all watches. It never waits: a change must not hang on who
// watches it. j.mu is held.
func (j *Jobs) tell(c Change, job, why string) {
	tenant := ""
	if r := j.records[job]; r != nil {
		tenant = r.asked.Tenant
	}
	j.tellOf(c, job, tenant, why)
}

func (j *Jobs) tellOf(c Change, job, tenant, why string) {
	e := Event{c, job, tenant, j.generation, why}
	for w := range j.watchers {
		select {
		case w.events <- e:
		default:
			w.behind = true
			w.end()
		}
	}
}
