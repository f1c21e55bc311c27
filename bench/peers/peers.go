// Package peers holds what gradnic is measured against, each doing the least that its kind can do with a frame:
// the asavie/xdp library, a minimal C program, plain UDP sockets. They all run on one pinned thread, on one queue of
// one netdev, and count what they saw. A yardstick that is set up badly flatters the one who holds it, so each runs in
// the fastest way found for it: large rings, frames recycled without a search, spinning instead of poll.
package peers

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Task is what a peer does with each frame.
type Task int

const (
	Drop         Task = iota // receive and give the frame back, unread
	Reflect                  // swap the MAC addresses and send the frame back where it came from
	Aggregate64              // sum SwitchML contributions of 64 elements, answer each worker; gradnic only
	Aggregate256             // and of 256
	Multicast64              // as Aggregate64, with one multicast frame a finished slot
	Multicast256             // and of 256
)

var taskNames = [...]string{"drop", "reflect", "aggregate64", "aggregate256", "multicast64", "multicast256"}

func (t Task) String() string { return taskNames[t] }

// ParseTask returns the task of this name.
func ParseTask(s string) (Task, error) {
	for i, n := range taskNames {
		if n == s {
			return Task(i), nil
		}
	}
	return 0, fmt.Errorf("task %q: legal are %v", s, taskNames)
}

func (t Task) elements() int {
	if t == Aggregate64 || t == Multicast64 {
		return 64
	}
	return 256
}

// Target is where a peer works. The process is in the netdev's namespace.
type Target struct {
	Interface string // the netdev's name
	IfIndex   int    // and its index
	Queue     int    // the receive queue that is bound
	CPU       int    // the peer's thread is pinned here
	Task      Task
}

// step is the one of two that the task asks for.
func (on Target) step(drop, reflect func() error) func() error {
	if on.Task == Reflect {
		return reflect
	}
	return drop
}

// Counts are what a peer saw from start to stop.
type Counts struct {
	Received uint64 `json:"received"` // frames that reached it
	Returned uint64 `json:"returned"` // frames that it handed to transmit
	Lost     uint64 `json:"lost"`     // frames that it received but could not send back, or copies of results
	Results  uint64 `json:"results"`  // slots that it finished

	Busy time.Duration `json:"busy_ns,omitempty"` // how long a lane had work, of all the time that it looked for some

	CPU time.Duration `json:"-"` // of its process, from start to end
}

// Peer is one contestant at work, inside its process.
type Peer interface {
	// Stop ends it and returns its counts; the netdev is as it was before.
	Stop() (Counts, error)
}

// loop runs step on a thread of its own, pinned to a CPU, until it is told to stop.
type loop struct {
	stop atomic.Bool
	done chan struct{}
	err  error
}

// start runs setup, then step until stop, on one locked thread. A thread whose affinity was changed is not given back
// to the scheduler: the goroutine ends while locked, which ends the thread.
func (l *loop) start(cpu int, step func() error) {
	l.done = make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(l.done)
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			l.err = fmt.Errorf("pin the peer's thread to CPU %d: %w", cpu, err)
			return
		}
		for !l.stop.Load() {
			if err := step(); err != nil {
				l.err = err
				return
			}
		}
	}()
}

func (l *loop) end() error {
	l.stop.Store(true)
	<-l.done
	return l.err
}
