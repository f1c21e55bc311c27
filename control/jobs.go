package control

import (
	"cmp"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"time"

	"gradnic/control/store"
	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// DefaultElements is the elements of a frame where a job does not say.
const DefaultElements = 256

// Origin is the door by which a job came.
type Origin uint8

// Doors.
const (
	OriginUnknown  Origin = iota // put into the data plane without this package
	OriginAPI                    // gradnic's own API
	OriginSwitchML               // the SwitchML controller
)

// Jobs is the registry of installed jobs. What runs is the data plane's to know;
// Jobs keeps what was asked for, when and by whom, refuses what can not be, and
// lets one change at a time through.
type Jobs struct {
	nic    *dataplane.NIC
	mac    inet.MAC
	ip     inet.Addr
	logger *slog.Logger

	ports []string     // names by index
	store *store.Store // nil: nothing is kept
	now   func() time.Time

	mu         sync.Mutex
	records    map[string]*record
	owners     map[endpoint]owner // of the workers of all records
	lost       map[string]string  // jobs in the store that could not be installed, and why
	watchers   map[*Watch]struct{}
	generation uint64
	limits     Limits
	paced      bool                                // the ports are
	charged    bool                                // the ports have budgets
	uncharged  bool                                // they do not have those of now: to be tried again
	present    func(job string, workers int) []int // nil: nobody knows
}

func newJobs(o Options) *Jobs {
	cfg := o.NIC.Config()
	j := &Jobs{
		nic: o.NIC, mac: cfg.MAC, ip: cfg.IP, logger: o.Logger, store: o.Store, now: o.Now, limits: o.Limits,
		records: map[string]*record{}, owners: map[endpoint]owner{}, lost: map[string]string{}, watchers: map[*Watch]struct{}{},
	}
	if j.now == nil {
		j.now = time.Now
	}
	for _, p := range o.NIC.Snapshot().Ports {
		j.ports = append(j.ports, p.Name)
	}
	return j
}

// record is what the data plane does not know of a job.
type record struct {
	asked      dataplane.JobSpec // defaults filled in, members by rank
	added      []dataplane.WorkerSpec
	origin     Origin
	installed  time.Time
	generation uint64
	lease      time.Duration // 0: for ever
	expires    time.Time     // when lease is not 0
	bytes      int64         // of its slots
	learned    []dataplane.Sender
}

// JobInfo is a job as the registry shows it.
type JobInfo struct {
	dataplane.JobStatus
	Origin     Origin
	Installed  time.Time // zero when OriginUnknown
	Generation uint64
	Lease      time.Duration // 0: for ever
	Expires    time.Time     // zero without a lease
	// Present are ranks that have come to a controller and wait there for the others, registered or not.
	Present []int
}

// Members are the workers that are known, by rank.
func (j *JobInfo) Members() []dataplane.WorkerStatus {
	var known []dataplane.WorkerStatus
	for _, w := range j.Status {
		if w.Known {
			known = append(known, w)
		}
	}
	return known
}

// MissingSince is when the oldest unfinished slot that waits for a rank began, or when
// the job was installed if the rank never came; zero: nothing waits for it.
func (j *JobInfo) MissingSince(rank int) time.Time {
	w := &j.Status[rank]
	if w.MissingSince.IsZero() && !w.Joined {
		return j.Installed
	}
	return w.MissingSince
}

// NeverCame are the ranks of which no frame was ever taken: those that never
// registered and those that never sent.
func (j *JobInfo) NeverCame() []int {
	return j.ranks(func(w *dataplane.WorkerStatus) bool { return w == nil || !w.Joined })
}

// NeverRegistered are the ranks that are not members of the job and do not wait at
// a controller to become that: the workers that others wait for before all begin.
func (j *JobInfo) NeverRegistered() []int {
	var absent []int
	for _, rank := range j.ranks(func(w *dataplane.WorkerStatus) bool { return w == nil || !w.Known }) {
		if !slices.Contains(j.Present, rank) {
			absent = append(absent, rank)
		}
	}
	return absent
}

// NeverSent are the ranks that have registered, or wait at a controller for others,
// and of which no frame was ever taken.
func (j *JobInfo) NeverSent() []int {
	unknown := j.NeverRegistered()
	var silent []int
	for _, rank := range j.NeverCame() {
		if !slices.Contains(unknown, rank) {
			silent = append(silent, rank)
		}
	}
	return silent
}

// ranks are those whose status (nil: there is none) has a property.
func (j *JobInfo) ranks(is func(*dataplane.WorkerStatus) bool) (ranks []int) {
	status := make([]*dataplane.WorkerStatus, j.Workers)
	for i := range j.Status {
		if w := &j.Status[i]; w.Rank >= 0 && w.Rank < len(status) {
			status[w.Rank] = w
		}
	}
	for rank, w := range status {
		if is(w) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

var jobName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func checkName(field, name string) error {
	if !jobName.MatchString(name) {
		return refuse(Invalid, field, "%q: a name is 1 to 63 letters, digits, '-', '_' and '.', starting with a letter or digit", clip(name))
	}
	return nil
}

// Install installs a job, all or nothing. The same specification again changes
// nothing and returns false; another one under a used name is refused. The job stays
// until it is removed.
func (j *Jobs) Install(spec dataplane.JobSpec, origin Origin) (bool, error) {
	return j.InstallFor(spec, origin, 0)
}

// InstallFor is Install of a job that is removed when its owner does not renew it
// for as long as lease; 0: it stays. The same specification again renews it, with
// this lease.
func (j *Jobs) InstallFor(spec dataplane.JobSpec, origin Origin, lease time.Duration) (bool, error) {
	spec = j.normal(spec)
	if err := checkLease(lease); err != nil {
		return false, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.check(spec); err != nil {
		return false, err
	}
	if old, err := j.asked(spec.Name); err == nil {
		if same(old, spec) {
			return false, j.again(spec.Name, lease)
		}
		return false, refuse(Exists, "job.name", "job %s is installed with another specification (%s): remove it first or take another name", spec.Name, difference(old, spec))
	} else if !errors.Is(err, dataplane.ErrNoJob) {
		return false, fromDataplane("look for job "+spec.Name, err)
	}
	if err := j.admit(spec); err != nil {
		return false, err
	}
	return true, j.install(spec, origin, lease)
}

// Replace installs a job in the place of the one of its name, if there is one.
// When the new job can not be, the old one is gone nevertheless if its removal
// had begun; a specification that is refused leaves the old one as it was.
func (j *Jobs) Replace(spec dataplane.JobSpec, origin Origin) error {
	spec = j.normal(spec)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.check(spec); err != nil {
		return err
	}
	if r := j.records[spec.Name]; r != nil && r.origin != origin {
		return refuse(Exists, "job.name", "job %s came by another door: it is not to be replaced by this one", spec.Name)
	}
	if err := j.admit(spec); err != nil {
		return err
	}
	if err := j.remove(spec.Name, "replaced"); err != nil && !errors.Is(err, dataplane.ErrNoJob) {
		return err
	}
	return j.install(spec, origin, 0)
}

// AddWorker adds a worker to an installed job. The same worker again changes
// nothing and returns false; another one under a used rank is refused.
func (j *Jobs) AddWorker(job string, w dataplane.WorkerSpec) (bool, error) {
	return j.AddWorkerIf(job, w, 0)
}

// AddWorkerIf is AddWorker to a job of this generation only; 0: of any.
func (j *Jobs) AddWorkerIf(job string, w dataplane.WorkerSpec, generation uint64) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	status, err := j.nic.Job(job)
	if err != nil {
		return false, fromDataplane("add a worker to job "+job, err)
	}
	if err := j.checkGeneration(job, generation); err != nil {
		return false, err
	}
	if err := j.checkWorker("worker", w, status.JobSpec.Workers); err != nil {
		return false, err
	}
	if placed(&status.JobSpec) {
		w = j.place(w)
		if err := j.checkPlace("worker", w); err != nil {
			return false, err
		}
	}
	r := j.records[job]
	if r != nil {
		for _, known := range slices.Concat(r.asked.Members, r.added) {
			if known == w {
				return false, nil
			}
		}
	}
	for _, known := range status.Status {
		if !known.Known {
			continue
		}
		switch {
		case known.Rank == w.Rank && known.MAC == w.MAC && known.IP == w.IP && (w.Port < 0 || w.Port == known.Port):
			return false, nil
		case known.Rank == w.Rank:
			return false, refuse(Exists, "worker.rank", "rank %d of job %s is %v %v already", w.Rank, job, known.MAC, known.IP)
		case known.IP == w.IP:
			return false, refuse(Invalid, "worker.ipv4", "%v is rank %d of job %s already", w.IP, known.Rank, job)
		}
	}
	if err := j.checkOthers("worker", w, job, status.Tenant); err != nil {
		return false, err
	}
	if r != nil {
		// Written first: what the data plane has can not be taken back, what is written can.
		after := *r
		after.added, after.generation = append(slices.Clone(r.added), w), j.generation+1
		if err := j.keep(&after); err != nil {
			return false, err
		}
	}
	if err := j.nic.AddWorker(job, w); err != nil {
		err = fromDataplane("add a worker to job "+job, err)
		if r != nil {
			err = errors.Join(err, j.keep(r))
		}
		return false, err
	}
	j.generation++
	j.tell(Changed, job, "worker added")
	if r != nil {
		r.added = append(r.added, w)
		r.generation = j.generation
		j.owners[endpoint{w.MAC, w.IP}] = owner{job, w.Rank}
		j.charge()
	}
	j.logger.Info("worker added", "job", job, "rank", w.Rank, "mac", w.MAC, "ip", w.IP)
	return true, nil
}

// Address is the NIC's own, that workers send to.
func (j *Jobs) Address() (inet.MAC, inet.Addr) { return j.mac, j.ip }

// Ports are the names of the NIC's ports, by index.
func (j *Jobs) Ports() []string { return slices.Clone(j.ports) }

// Remove removes a job.
func (j *Jobs) Remove(name string) error { return j.RemoveIf(name, 0) }

// RemoveIf is Remove of a job of this generation only; 0: of any.
func (j *Jobs) RemoveIf(name string, generation uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.checkGeneration(name, generation); err != nil {
		return err
	}
	return j.remove(name, "removed")
}

// Get returns one job.
func (j *Jobs) Get(name string) (JobInfo, error) {
	status, err := j.nic.Job(name)
	if err != nil {
		return JobInfo{}, fromDataplane("job "+name, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.info(status), nil
}

// List returns all jobs, sorted by name.
func (j *Jobs) List() []JobInfo {
	running := j.nic.Jobs()
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]JobInfo, 0, len(running))
	for _, status := range running {
		list = append(list, j.info(status))
	}
	slices.SortFunc(list, func(a, b JobInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (j *Jobs) info(status dataplane.JobStatus) JobInfo {
	info := JobInfo{JobStatus: status}
	if r := j.records[status.Name]; r != nil {
		info.Origin, info.Installed, info.Generation = r.origin, r.installed, r.generation
		info.Lease, info.Expires = r.lease, r.expires
	}
	if j.present != nil {
		info.Present = j.present(status.Name, status.Workers)
	}
	return info
}

// SetPresence gives the registry a function that knows which ranks of a job wait at a
// controller for the others to come. It must not call the registry.
func (j *Jobs) SetPresence(present func(job string, workers int) []int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.present = present
}

func (j *Jobs) install(spec dataplane.JobSpec, origin Origin, lease time.Duration) error {
	drawKeys(&spec)
	if err := j.nic.InstallJob(spec); err != nil {
		return fromDataplane("install job "+spec.Name, err)
	}
	j.number(&spec)
	now := j.now()
	r := &record{asked: spec, origin: origin, installed: now, generation: j.generation + 1}
	r.renew(lease, now)
	// Nobody has been told yet that it is there: it may go again.
	if err := j.keep(r); err != nil {
		return errors.Join(err, j.nic.RemoveJob(spec.Name))
	}
	j.generation++
	delete(j.lost, spec.Name)
	j.own(r)
	j.charge()
	j.say("job installed", &spec, "members", len(spec.Members), "generation", j.generation)
	j.tell(Installed, spec.Name, "installed")
	return nil
}

// say logs what became of a whole job. The data plane's own lines are for debugging: it knows neither tenants nor origins.
func (j *Jobs) say(what string, s *dataplane.JobSpec, more ...any) {
	of := []any{"job", s.Name}
	if s.Tenant != "" {
		of = append(of, "tenant", s.Tenant)
	}
	of = append(of, "workers", s.Workers, "elements", s.Elements, "slots", s.Slots)
	j.logger.Info(what, append(of, more...)...)
}

// own enters a record of a job that is installed.
func (j *Jobs) own(r *record) {
	j.records[r.asked.Name] = r
	r.bytes, _ = j.slotBytes(r.asked) // no error: it is installed
	if r.asked.Native != nil {
		return // several jobs may have a station
	}
	for _, w := range slices.Concat(r.asked.Members, r.added) {
		j.owners[endpoint{w.MAC, w.IP}] = owner{r.asked.Name, w.Rank}
	}
}

func (j *Jobs) remove(name, why string) error {
	if _, lost := j.lost[name]; lost {
		if err := j.forget(name); err != nil {
			return err
		}
		j.generation++
		delete(j.lost, name)
		return nil
	}
	r := j.records[name]
	// Written first: a job that comes back after its removal was acknowledged is worse
	// than one that is gone before it was.
	if r != nil && r.origin == OriginAPI {
		if err := j.forget(name); err != nil {
			return err
		}
	}
	if err := j.nic.RemoveJob(name); err != nil {
		return fromDataplane("remove job "+name, err)
	}
	j.generation++
	if r != nil {
		for _, w := range slices.Concat(r.asked.Members, r.added) {
			delete(j.owners, endpoint{w.MAC, w.IP})
		}
		delete(j.records, name)
		j.charge()
	}
	if r != nil {
		j.say("job removed", &r.asked, "why", why, "generation", j.generation)
		j.tellOf(Removed, name, r.asked.Tenant, why)
	} else {
		j.logger.Info("job removed", "job", name, "why", why, "generation", j.generation)
	}
	return nil
}

// asked returns what was asked for under this name.
func (j *Jobs) asked(name string) (dataplane.JobSpec, error) {
	status, err := j.nic.Job(name)
	if err != nil {
		return dataplane.JobSpec{}, err
	}
	if r := j.records[name]; r != nil {
		return r.asked, nil
	}
	return normal(status.JobSpec), nil
}
