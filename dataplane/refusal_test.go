package dataplane

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// What is refused says whether the request has to be another one, or something that is set has to go first.
func TestKindsOfRefusal(t *testing.T) {
	n, _ := memNIC(t, testConfig(), 1)
	install(t, n, JobSpec{Name: "there", Workers: 1, Elements: 64, Members: members(1, true)})
	for says, x := range map[string]struct {
		kind error
		call func() error
	}{
		"install job new: rank 1: 02:00:00:00:01:00 10.50.0.1 is rank 0 of job there already": {ErrConflict, func() error {
			w := members(1, true)
			w[0].Rank = 1
			return n.InstallJob(JobSpec{Name: "new", Workers: 2, Elements: 64, Members: w})
		}},
		"install job new: rank 1: 02:00:00:00:01:04 10.50.0.5 is rank 0 already": {ErrInvalid, func() error {
			w := WorkerSpec{MAC: workerMAC(4), IP: workerIP(4), Port: -1}
			again := w
			again.Rank = 1
			return n.InstallJob(JobSpec{Name: "new", Workers: 2, Elements: 64, Members: []WorkerSpec{w, again}})
		}},
		"install job new: 65 elements a frame": {ErrInvalid, func() error { return n.InstallJob(JobSpec{Name: "new", Workers: 1, Elements: 65}) }},
		"memory of job new: 65 elements a frame": {ErrInvalid, func() error {
			_, err := n.SlotBytes(JobSpec{Name: "new", Workers: 1, Elements: 65})
			return err
		}},
		"install job there: job exists": {ErrJobExists, func() error { return n.InstallJob(JobSpec{Name: "there", Workers: 1, Elements: 64}) }},
	} {
		err := x.call()
		if err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
		for _, kind := range []error{ErrInvalid, ErrConflict, ErrJobExists} {
			if errors.Is(err, kind) != (kind == x.kind) {
				t.Errorf("%v: it is %q: %v", err, kind, errors.Is(err, kind))
			}
		}
	}
	check(t, n)
}

// A port of a NIC that has not started has no queues, which is an empty list in JSON.
func TestNoQueuesYet(t *testing.T) {
	n, err := New(testConfig(), NewMemPort("m0"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(n.Snapshot())
	if err != nil || !strings.Contains(string(b), `"per_queue":[]`) {
		t.Errorf("%v: %s", err, b)
	}
}
