package control

import (
	"slices"
	"time"
)

// Bounds of a lease: shorter ones end by a pause of their owner's garbage collector,
// longer ones are none.
const (
	MinLease = time.Second
	MaxLease = 7 * 24 * time.Hour
)

func checkLease(lease time.Duration) error {
	if lease != 0 && (lease < MinLease || lease > MaxLease) {
		return refuse(Invalid, "lease", "%v: a lease is %v to %v, or none", lease, MinLease, MaxLease)
	}
	return nil
}

func (r *record) renew(lease time.Duration, now time.Time) {
	r.lease, r.expires = lease, time.Time{}
	if lease != 0 {
		r.expires = now.Add(lease)
	}
}

// again is the installation of a job that is there: its owner is alive.
func (j *Jobs) again(name string, lease time.Duration) error {
	r := j.records[name]
	if r == nil {
		return nil
	}
	after := *r
	after.renew(lease, j.now())
	if after.lease != r.lease {
		if err := j.keep(&after); err != nil {
			return err
		}
	}
	r.renew(lease, j.now())
	return nil
}

// Renew lets a job's lease begin anew and returns when it ends; zero: it has none.
func (j *Jobs) Renew(name string, generation uint64) (time.Time, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.records[name]
	if r == nil {
		return time.Time{}, refuse(NotFound, "job "+clip(name), "no such job: its lease may have ended, install it again")
	}
	if err := j.checkGeneration(name, generation); err != nil {
		return time.Time{}, err
	}
	r.renew(r.lease, j.now())
	return r.expires, nil
}

// checkGeneration refuses a caller who has not seen the job as it is; 0: he does not say.
func (j *Jobs) checkGeneration(name string, generation uint64) error {
	r := j.records[name]
	if generation == 0 || r == nil || r.generation == generation {
		return nil
	}
	return refuse(Stale, "generation", "job %s is of generation %d, not %d: look at it again", name, r.generation, generation)
}

// Expire removes the jobs whose lease has ended by now, with their slots, and
// returns their names. A job that can not be removed is tried again next time.
func (j *Jobs) Expire(now time.Time) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var ended []string
	for name, r := range j.records {
		if r.lease != 0 && !now.Before(r.expires) {
			ended = append(ended, name)
		}
	}
	slices.Sort(ended)
	return slices.DeleteFunc(ended, func(name string) bool {
		err := j.remove(name, "its lease ended")
		if err != nil {
			j.logger.Error("job whose lease ended not removed", "job", name, "err", err)
		}
		return err != nil
	})
}
