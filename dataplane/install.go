package dataplane

import (
	"fmt"
	"slices"
	"sort"

	"gradnic/aggregation"
	"gradnic/aggregation/recovery"
	"gradnic/multicast"
	"gradnic/wire/layout"
	"gradnic/wire/switchml"
)

// laneJob is a job's share on one lane: the pool of its slots, where its results go, and its counts.
type laneJob struct {
	name      string
	elements  int
	frameLen  int // of a message and of a result
	slots     int // of the whole job
	pool      *aggregation.Pool
	group     *multicast.Group
	copies    []multicast.Copy // one a frame of a result
	receivers int              // frames that a result should make
	shared    bool             // copies are multicast frames
	workers   []laneWorker     // by rank

	results, resent, wrapped uint64
	times                    completions

	native    *laneNative // nil for switchml
	multicast *MulticastSpec
	fixed     []bool         // by rank: its port was given
	layout    *layout.Layout // nil: the protocol's own frames
	via       uint8          // its index in Config.Layouts plus one, 0 for none
	summed    bool           // the kernel adds up; the pool is not used
	tag       uint16         // of the marks of its frames
}

// laneWorker is what one lane has seen of a worker.
type laneWorker struct {
	joined bool // a frame came
	port   int  // of the first frame, -1 before
	sent   uint64

	received, contributed, duplicates uint64
	resent, last                      uint64 // results sent again; slots that it completed
	lastSeen                          int64
}

// receiver is the worker that a copy of a result is for; nil for rank -1, several.
func (j *laneJob) receiver(rank int) *laneWorker {
	if rank < 0 {
		return nil
	}
	return &j.workers[rank]
}

// job is the control side's record of a job: its specification and the share of each lane.
type job struct {
	spec   JobSpec
	lanes  []*laneJob
	summed *summed // nil: the lanes add up
	frame  int     // bytes of its longest frame, 0: not known
}

// join records where a worker's first frame came from. It may allocate: it happens once a worker.
func (l *lane) join(j *laneJob, w *laneWorker, rank, port int) {
	w.joined = true
	w.port = port
	m, ok := j.group.Member(rank)
	if !ok || m.Port != multicast.Unknown {
		return
	}
	m.Port = port
	if g, err := j.group.With(m); err == nil {
		j.setGroup(g)
	}
}

func (j *laneJob) setGroup(g *multicast.Group) {
	j.group = g
	switch {
	case !j.shared:
		j.copies = g.Copies()
	case j.native != nil:
		j.spreadGroup(j.multicast)
	}
}

// newLaneJobs makes a job's share for each lane.
func (n *NIC) newLaneJobs(s *JobSpec) ([]*laneJob, error) {
	members := make([]multicast.Member, len(s.Members))
	for i, m := range s.Members {
		members[i] = m.member()
	}
	group, err := multicast.NewGroup(s.Workers, members...)
	if err != nil {
		return nil, err
	}
	var co *recovery.Coordinator
	if s.Native != nil {
		co = recovery.New(s.Workers, s.Slots, n.newEpoch)
	}
	header, via, err := n.layoutOf(s)
	if err != nil {
		return nil, err
	}
	jobs := make([]*laneJob, len(n.lanes))
	for i := range jobs {
		spec := n.poolSpec(s)
		spec.Seed = uint64(i) // results that are rounded at random are so in each lane for itself
		pool, err := aggregation.NewPool(spec)
		if err != nil {
			return nil, err
		}
		j := &laneJob{
			name: s.Name, elements: s.Elements, frameLen: switchml.FrameLen(s.Elements), slots: s.Slots,
			pool: pool, workers: make([]laneWorker, s.Workers), receivers: s.Workers, layout: header, via: via,
		}
		for r := range j.workers {
			j.workers[r].port = multicast.Unknown
		}
		if s.Native != nil {
			j.native = n.newLaneNative(s, i, co)
			j.frameLen = 0
			j.fixed = make([]bool, s.Workers)
			for _, m := range s.Members {
				j.fixed[m.Rank] = m.Port != multicast.Unknown
			}
		}
		if m := s.Multicast; m != nil {
			j.shared, j.multicast = true, m
			j.receivers = len(m.Ports)
			for _, p := range m.Ports {
				j.copies = append(j.copies, multicast.Copy{Rank: -1, Port: p, MAC: m.MAC, IP: m.IP, UDPPort: m.Port})
			}
		}
		j.setGroup(group)
		jobs[i] = j
	}
	return jobs, nil
}

// poolSpec is the pool of one lane: its share of the slots, rounded up.
func (n *NIC) poolSpec(s *JobSpec) aggregation.Spec {
	slots := (s.Slots + len(n.lanes) - 1) / len(n.lanes)
	if s.InKernel {
		slots = 1 // none of them is used
	}
	if x := s.Native; x != nil {
		spec := aggregation.Spec{
			Rule: aggregation.Rounds, Workers: s.Workers, Elements: s.Elements, Slots: slots,
			Type: x.Type, ByteOrder: aggregation.LittleEndian, Op: x.Op, Order: x.Order, Policy: x.Policy,
		}
		spec.Codec, spec.Result, _ = x.Codecs(s.Workers, s.Elements) // setDefaults has refused what is none
		return spec
	}
	return aggregation.Spec{Rule: aggregation.SwitchML, Workers: s.Workers, Elements: s.Elements, Exponents: 2, Slots: slots}
}

func (w WorkerSpec) member() multicast.Member {
	return multicast.Member{Rank: w.Rank, Port: w.Port, MAC: w.MAC, IP: w.IP}
}

// checkWorkers refuses addresses that another worker has, and ports that do not exist. A worker is known by its
// addresses alone, so they belong to one rank of one job.
func (n *NIC) checkWorkers(name string, workers []WorkerSpec, isNative bool) error {
	// Any lane's table knows all workers of all jobs, except native ones: there the message says job and rank.
	table := n.lanes[0].table
	for i, w := range workers {
		if w.Port < multicast.Unknown || w.Port >= len(n.ports) {
			return fmt.Errorf("rank %d: port %d: legal are -1 (learn) to %d", w.Rank, w.Port, len(n.ports)-1)
		}
		if isNative {
			continue
		}
		if e := table.find(w.MAC.Uint64(), w.IP.Uint32()); e != nil && (e.job.name != name || int(e.rank) != w.Rank) {
			return conflictf("rank %d: %v %v is rank %d of job %s already", w.Rank, w.MAC, w.IP, e.rank, e.job.name)
		}
		for _, o := range workers[:i] {
			if o.MAC == w.MAC && o.IP == w.IP {
				return fmt.Errorf("rank %d: %v %v is rank %d already", w.Rank, w.MAC, w.IP, o.Rank)
			}
		}
	}
	return nil
}

// InstallJob gives a job slots and makes its known workers' messages count. It returns when every lane has the job;
// no frame of other jobs is lost meanwhile. The error wraps ErrJobExists when the name is taken, ErrConflict when the job and
// something that is set exclude each other, and ErrInvalid when it is nothing for this NIC.
func (n *NIC) InstallJob(s JobSpec) error {
	if err := n.installJob(s); err != nil {
		return fmt.Errorf("install job %s: %w", s.Name, err)
	}
	return nil
}

func (n *NIC) installJob(s JobSpec) error {
	if err := s.setDefaults(); err != nil {
		return invalid(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == stopped {
		return ErrStopped
	}
	if _, ok := n.jobs[s.Name]; ok {
		return ErrJobExists
	}
	if err := n.admitJob(&s); err != nil {
		return invalid(err)
	}
	lanes, err := n.newLaneJobs(&s)
	if err != nil {
		return invalid(err)
	}
	j := &job{spec: s, lanes: lanes, frame: n.frameOf(&s)}
	if s.InKernel {
		if j.summed, err = n.installSummed(&s); err != nil {
			return err
		}
		j.tagLanes()
	}
	n.jobs[s.Name] = j
	n.applyInstalled(j)
	n.cfg.Logger.Debug("job installed", "job", s.Name, "workers", s.Workers, "elements", s.Elements, "slots", s.Slots)
	return nil
}

// admitJob refuses a job that cannot be on this NIC, and makes its specification the NIC's own. n.mu is held.
func (n *NIC) admitJob(s *JobSpec) error {
	s.Members = slices.Clone(s.Members)
	if err := n.checkWorkers(s.Name, s.Members, s.Native != nil); err != nil {
		return err
	}
	if s.Native != nil {
		if err := n.admitNative(s); err != nil {
			return err
		}
	}
	if s.InKernel {
		if err := n.admitSummed(s); err != nil {
			return err
		}
	}
	if m := s.Multicast; m != nil {
		c := *m
		c.Ports = slices.Clone(m.Ports)
		s.Multicast = &c
		for _, p := range c.Ports {
			if p < 0 || p >= len(n.ports) {
				return fmt.Errorf("multicast port %d: legal are 0 to %d", p, len(n.ports)-1)
			}
		}
	}
	return nil
}

// AddWorker makes a rank of a job known. It replaces a rank that is known already, as when a worker comes back with
// another address; what the rank has contributed stays.
func (n *NIC) AddWorker(name string, w WorkerSpec) error {
	if err := n.addWorker(name, w); err != nil {
		return fmt.Errorf("add a worker to job %s: %w", name, err)
	}
	return nil
}

func (n *NIC) addWorker(name string, w WorkerSpec) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	j, ok := n.jobs[name]
	if !ok {
		return ErrNoJob
	}
	if n.state == stopped {
		return ErrStopped
	}
	if j.summed != nil {
		if err := n.settlePort(&w); err != nil {
			return invalid(err)
		}
	}
	members := slices.DeleteFunc(slices.Clone(j.spec.Members), func(m WorkerSpec) bool { return m.Rank == w.Rank })
	old := j.spec.Members
	j.spec.Members = members
	if err := n.checkWorkers(name, []WorkerSpec{w}, j.spec.Native != nil); err != nil {
		j.spec.Members = old
		return invalid(err)
	}
	members = append(members, w)
	sort.Slice(members, func(a, b int) bool { return members[a].Rank < members[b].Rank })
	// Validated once here; each lane adds to its own group, which may have learned ports meanwhile.
	if _, err := multicast.NewGroup(j.spec.Workers, w.member()); err != nil {
		j.spec.Members = old
		return invalid(err)
	}
	if j.summed != nil {
		// Nobody is this rank meanwhile: a frame that no program has looked at must not come to a lane that takes it for a result.
		j.spec.Members = slices.DeleteFunc(slices.Clone(old), func(m WorkerSpec) bool { return m.Rank == w.Rank })
		n.applyTables()
		if err := n.sums.SetMember(j.summed.id, w.Rank, w.MAC, w.IP); err != nil {
			j.spec.Members = old
			n.applyTables()
			return err
		}
	}
	j.spec.Members = members
	n.onLanes(func(l *lane) {
		lj := j.lanes[l.id]
		if lj.native != nil {
			lj.fixed[w.Rank] = w.Port != multicast.Unknown
			if lj.native.lead != nil {
				lj.native.lead.given[w.Rank] = true
			}
		}
		if g, err := lj.group.With(w.member()); err == nil {
			lj.setGroup(g)
		}
		lj.workers[w.Rank].joined = false
		lj.workers[w.Rank].port = w.Port
	})
	n.applyTables()
	return nil
}

// RemoveJob takes a job away. Its frames are dropped as unknown-worker from then on, and its slots are gone.
func (n *NIC) RemoveJob(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	j, ok := n.jobs[name]
	if !ok {
		return fmt.Errorf("remove job %s: %w", name, ErrNoJob)
	}
	delete(n.jobs, name)
	n.applyRemoved(j)
	if j.summed != nil && n.state != stopped { // after the lanes: what no program has looked at is nobody's
		if err := n.sums.Remove(j.summed.id); err != nil {
			return fmt.Errorf("remove job %s: %w", name, err)
		}
	}
	n.cfg.Logger.Debug("job removed", "job", name)
	return nil
}

// ResetJob gives a job fresh slots and counts; its workers stay.
func (n *NIC) ResetJob(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	j, ok := n.jobs[name]
	if !ok {
		return fmt.Errorf("reset job %s: %w", name, ErrNoJob)
	}
	lanes, err := n.newLaneJobs(&j.spec)
	if err != nil {
		return fmt.Errorf("reset job %s: %w", name, err)
	}
	if j.summed != nil {
		if err := n.sums.Reset(j.summed.id); err != nil {
			return fmt.Errorf("reset job %s: %w", name, err)
		}
	}
	j.lanes = lanes
	j.tagLanes()
	n.applyTables()
	return nil
}

// applyInstalled gives each lane the workers of a new job. The tables of a thousand jobs are not built again for one
// more, as long as it fits.
func (n *NIC) applyInstalled(j *job) {
	if j.spec.Native != nil || !n.lanes[0].table.fits(j.spec.Workers) {
		n.applyTables()
		return
	}
	n.onLanes(func(l *lane) {
		for _, m := range j.spec.Members {
			l.table.insert(m.MAC, m.IP, m.Rank, j.lanes[l.id])
		}
		l.table.reserved += j.spec.Workers
	})
}

// applyRemoved takes the workers of a job out of each lane's tables.
func (n *NIC) applyRemoved(j *job) {
	if j.spec.Native != nil {
		n.applyTables()
		return
	}
	n.onLanes(func(l *lane) {
		for _, m := range j.spec.Members {
			l.table.remove(m.MAC, m.IP)
		}
		l.table.reserved -= j.spec.Workers
	})
}

// applyTables builds each lane's tables from the jobs and hands them over. It returns when all lanes have them.
func (n *NIC) applyTables() {
	names := n.jobNames()
	type tables struct {
		match   *matchTable
		natives []*laneJob // by number
	}
	built := make([]tables, len(n.lanes))
	for i := range built {
		t := &built[i]
		jobs := make([]*laneJob, len(names))
		for k, name := range names {
			jobs[k] = n.jobs[name].lanes[i]
		}
		t.match = newMatchTable(jobs)
		for k, name := range names {
			if x := jobs[k].native; x != nil {
				t.natives = append(t.natives, make([]*laneJob, max(0, int(x.id)+1-len(t.natives)))...)
				t.natives[x.id] = jobs[k]
				continue
			}
			for _, m := range n.jobs[name].spec.Members {
				t.match.insert(m.MAC, m.IP, m.Rank, jobs[k])
			}
		}
	}
	n.onLanes(func(l *lane) {
		l.table, l.natives = built[l.id].match, built[l.id].natives
	})
}

func (n *NIC) jobNames() []string {
	names := make([]string, 0, len(n.jobs))
	for name := range n.jobs {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
