package dataplane

import (
	"fmt"
	"slices"
	"time"

	"gradnic/aggregation"
	"gradnic/multicast"
)

// Jobs returns the state of all jobs, by name.
func (n *NIC) Jobs() []JobStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := []JobStatus{}
	for _, name := range n.jobNames() {
		all = append(all, n.status(n.jobs[name]))
	}
	return all
}

// Job returns the state of one job. The error wraps ErrNoJob.
func (n *NIC) Job(name string) (JobStatus, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	j, ok := n.jobs[name]
	if !ok {
		return JobStatus{}, fmt.Errorf("job %s: %w", name, ErrNoJob)
	}
	return n.status(j), nil
}

// status asks each lane for its share, on its own thread.
func (n *NIC) status(j *job) JobStatus {
	type share struct {
		workers              []laneWorker
		collecting, complete int
		since                []int64 // by rank: when the oldest slot that lacks it began, 0: none
		times                completions
		results, resent      uint64
		wrapped              uint64
		state                *NativeStatus
		group                *multicast.Group
	}
	shares := make([]share, len(n.lanes))
	n.onLanes(func(l *lane) {
		lj, s := j.lanes[l.id], &shares[l.id]
		s.workers = slices.Clone(lj.workers)
		_, s.collecting, s.complete = lj.pool.Occupancy()
		s.since, s.times = make([]int64, len(lj.workers)), lj.times
		var ranks []int
		lj.pool.Walk(func(slot, set int, v aggregation.State) bool {
			ranks = lj.pool.Missing(ranks[:0], slot, set)
			for _, r := range ranks {
				if s.since[r] == 0 || v.Started < s.since[r] {
					s.since[r] = max(1, v.Started)
				}
			}
			return true
		})
		s.results, s.resent, s.wrapped = lj.results, lj.resent, lj.pool.Wrapped()
		if lj.native != nil && lj.native.lead != nil {
			s.state, s.group = lj.nativeStatus(), lj.group
		}
	})

	st := JobStatus{JobSpec: j.spec, Missing: []int{}}
	st.Members = slices.Clone(j.spec.Members)
	st.Status = make([]WorkerStatus, j.spec.Workers)
	for r := range st.Status {
		st.Status[r] = WorkerStatus{Rank: r, Port: multicast.Unknown}
	}
	for _, m := range st.Members {
		w := &st.Status[m.Rank]
		w.MAC, w.IP, w.Port, w.Known = m.MAC, m.IP, m.Port, true
	}
	st.Use.Total = j.spec.Slots * aggregation.Versions
	st.State = shares[0].state
	if g := shares[0].group; g != nil { // it has those that were learned, too
		for r := range st.Status {
			if m, ok := g.Member(r); ok {
				w := &st.Status[r]
				w.MAC, w.IP, w.Port, w.Known = m.MAC, m.IP, m.Port, true
			}
		}
	}
	var times completions
	for i := range shares {
		s := &shares[i]
		times.merge(&s.times)
		st.Use.Waiting += s.collecting
		st.Use.Complete += s.complete
		st.Results += s.results
		st.Resent += s.resent
		st.Wrapped += s.wrapped
		for r, w := range s.workers {
			t := &st.Status[r]
			t.Received += w.received
			t.Contributed += w.contributed
			t.Duplicates += w.duplicates
			t.Sent += w.sent
			t.Resent += w.resent
			t.Last += w.last
			if s.since[r] != 0 {
				if since := n.epoch.Add(time.Duration(s.since[r])); t.MissingSince.IsZero() || since.Before(t.MissingSince) {
					t.MissingSince = since
				}
			}
			if w.joined {
				t.Joined = true
				if seen := n.epoch.Add(time.Duration(w.lastSeen)); seen.After(t.LastSeen) {
					t.LastSeen = seen
				}
				if t.Port == multicast.Unknown {
					t.Port = w.port
				}
			}
		}
	}
	st.Times = times.public()
	if j.summed != nil {
		if err := n.summedStatus(j, &st); err != nil {
			n.cfg.Logger.Error("state of a job that the kernel adds up", "job", j.spec.Name, "err", err)
		}
	}
	st.Use.InUse = st.Use.Waiting + st.Use.Complete
	for r := range st.Status {
		if !st.Status[r].MissingSince.IsZero() || !st.Status[r].Joined {
			st.Missing = append(st.Missing, r)
		}
	}
	return st
}
