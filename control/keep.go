package control

import (
	"cmp"
	"fmt"
	"slices"

	"gradnic/control/store"
	"gradnic/dataplane"
)

// This file is what the registry keeps over restarts: the jobs that the API
// installed. A SwitchML session lives in its clients, who begin it anew.

// keep writes a record. It is on the disk when nil is returned.
func (j *Jobs) keep(r *record) error {
	if j.store == nil || r.origin != OriginAPI {
		return nil
	}
	if err := j.store.Put(store.Record{
		Spec: r.asked, Added: r.added, Ports: j.ports, Installed: r.installed, Generation: r.generation, Lease: r.lease,
	}); err != nil {
		return &Error{Kind: Failed, Why: "nothing was changed", err: err}
	}
	return nil
}

// forget takes a job out of the store.
func (j *Jobs) forget(name string) error {
	if j.store == nil {
		return nil
	}
	if err := j.store.Delete(name, j.generation+1); err != nil {
		return &Error{Kind: Failed, Why: "nothing was changed", err: err}
	}
	return nil
}

// restore installs what is in the store, in the order in which it came. A job that
// can not be any more, since its port is gone or the NIC is another, stays in the
// store and out of the data plane, and the log says why: it comes back when what it
// needs does, and can be removed.
func (j *Jobs) restore() error {
	if j.store == nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.charge()
		j.pace()
		return nil
	}
	records, generation, err := j.store.Load()
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	// Jobs of other origins have counted too and were not written: generations that
	// somebody may hold from before must not come again.
	j.generation = generation + restartGap
	slices.SortFunc(records, func(a, b store.Record) int { return cmp.Compare(a.Generation, b.Generation) })
	for i := range records {
		if err := j.restoreOne(&records[i]); err != nil {
			name := records[i].Spec.Name
			j.lost[name] = err.Error()
			j.logger.Error("job not restored: it stays in the store, remove it or mend what it needs", "job", name, "err", err)
		}
	}
	j.charge()
	j.pace()
	j.logger.Info("jobs restored", "store", j.store.Path(), "restored", len(j.records), "not_restored", len(j.lost))
	return nil
}

// restartGap is more than the changes that are not written between two that are.
const restartGap = 1 << 20

func (j *Jobs) restoreOne(kept *store.Record) error {
	spec := j.normal(kept.Spec)
	added := slices.Clone(kept.Added)
	if err := errorsOf(j.movePorts(spec.Members, kept.Ports), j.movePorts(added, kept.Ports)); err != nil {
		return err
	}
	if m := spec.Multicast; m != nil {
		moved := *m
		moved.Ports = slices.Clone(m.Ports)
		for i, p := range moved.Ports {
			var err error
			if moved.Ports[i], err = j.movePort(p, kept.Ports); err != nil {
				return err
			}
		}
		spec.Multicast = &moved
	}
	if err := j.check(spec); err != nil {
		return err
	}
	for _, w := range added {
		field := fmt.Sprintf("added worker of rank %d", w.Rank)
		if err := errorsOf(j.checkWorker(field, w, spec.Workers), j.checkOthers(field, w, spec.Name, spec.Tenant)); err != nil {
			return err
		}
	}
	r := &record{asked: spec, added: added, origin: OriginAPI, installed: kept.Installed, generation: kept.Generation}
	r.renew(kept.Lease, j.now()) // its owner could not renew it while we were away
	if status, err := j.nic.Job(spec.Name); err == nil {
		// The data plane went on without us: it is there already, and not to be touched.
		whole := spec
		whole.Members = slices.Concat(spec.Members, added)
		if d := difference(normal(whole), normal(status.JobSpec)); d != "" {
			return fmt.Errorf("a job of that name runs with another specification (%s)", d)
		}
		j.own(r)
		return nil
	}
	if err := j.nic.InstallJob(spec); err != nil {
		return fromDataplane("install job "+spec.Name, err)
	}
	for _, w := range added {
		if err := j.nic.AddWorker(spec.Name, w); err != nil {
			return errorsOf(fromDataplane("add a worker to job "+spec.Name, err), j.nic.RemoveJob(spec.Name))
		}
	}
	j.own(r)
	j.say("job restored", &spec, "members", len(spec.Members)+len(added))
	return nil
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// movePorts turns indices into the ports of then into indices into the ports of now.
func (j *Jobs) movePorts(workers []dataplane.WorkerSpec, then []string) error {
	for i := range workers {
		port, err := j.movePort(workers[i].Port, then)
		if err != nil {
			return fmt.Errorf("rank %d: %w", workers[i].Rank, err)
		}
		workers[i].Port = port
	}
	return nil
}

func (j *Jobs) movePort(index int, then []string) (int, error) {
	if index < 0 {
		return index, nil
	}
	if index >= len(then) {
		return 0, fmt.Errorf("port %d of %d", index, len(then))
	}
	now := slices.Index(j.ports, then[index])
	if now < 0 {
		return 0, fmt.Errorf("port %s is not a port of the NIC: its ports are %v", then[index], j.ports)
	}
	return now, nil
}

// Lost are the jobs in the store that could not be installed, and why.
func (j *Jobs) Lost() map[string]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lost := make(map[string]string, len(j.lost))
	for name, why := range j.lost {
		lost[name] = why
	}
	return lost
}
