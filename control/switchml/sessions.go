package switchml

import (
	"fmt"
	"slices"
	"sync"

	"gradnic/dataplane"
)

// session is one job of this controller.
type session struct {
	name        string // of the job
	door        string // that rank 0 came in by
	id          uint64 // rank 0's clock
	connections []*connection
}

// over is true when everybody who joined has gone: nothing else ends a session. An unknown connection never goes.
func (s *session) over() bool {
	return !slices.ContainsFunc(s.connections, func(c *connection) bool { return !c.ended() })
}

// sessions are those that run, or have run last, each under its job's name.
type sessions struct {
	begin sync.Mutex // held while one is begun; the registry is asked under it, and never under mu
	mu    sync.Mutex
	all   []*session // in the order of their names' numbers
}

// place is the name for a session that this rank 0 begins. A worker that is in a session already has been started
// again, and with it all others: its session is replaced, as by the public controller. So is one that is over, or whose
// job is gone. Any other runs on beside the new one. s.begin is held.
func (s *sessions) place(o *Options, rank0 dataplane.WorkerSpec) (string, error) {
	free := ""
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, x := range all {
		job, err := o.Jobs.Get(x.name)
		if err == nil && slices.ContainsFunc(job.Members(), func(w dataplane.WorkerStatus) bool { return w.MAC == rank0.MAC && w.IP == rank0.IP }) {
			return x.name, nil
		}
		if free == "" && (err != nil || s.over(x)) {
			free = x.name
		}
	}
	if free != "" {
		return free, nil
	}
	if len(all) >= o.Sessions {
		return "", fmt.Errorf("%d sessions run already: wait for one to end", len(all))
	}
	if len(all) == 0 {
		return o.Job, nil
	}
	return fmt.Sprintf("%s-%d", o.Job, len(all)+1), nil
}

func (s *sessions) over(x *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return x.over()
}

// put enters a session in the place of the one of its name.
func (s *sessions) put(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if s.all[i].name == x.name {
			s.all[i] = x
			return
		}
	}
	s.all = append(s.all, x)
}

// find is the job of the session of this id and door. Where one session runs, the id is not looked at, as the public
// controller does not; first is the job's name where none has been begun here.
func (s *sessions) find(door string, id uint64, first string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var here []*session
	for _, x := range s.all {
		if x.door != door {
			continue
		}
		if x.id == id {
			return x.name, nil
		}
		if !x.over() {
			here = append(here, x)
		}
	}
	switch {
	case len(s.all) == 0:
		return first, nil
	case len(here) == 1 && len(s.all) == 1:
		return here[0].name, nil
	}
	return "", fmt.Errorf("rank 0 has not begun session %d here: %d others run", id, len(here))
}

// joined remembers that somebody on this connection is in a session.
func (s *sessions) joined(name string, c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		if x.name == name && !slices.Contains(x.connections, c) {
			x.connections = append(x.connections, c)
		}
	}
}

// doorFor is the door of the session whose job has this name; ok is false when there is none.
func (s *sessions) doorFor(name string) (door string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		if x.name == name {
			return x.door, true
		}
	}
	return "", false
}
