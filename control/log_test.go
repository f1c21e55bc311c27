package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"gradnic/control/store"
	"gradnic/dataplane"
)

// What becomes of a job is one line each time, with its tenant, though two parts of the program hear of it.
func TestJobIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	path := filepath.Join(t.TempDir(), "jobs")
	process := func(do func(*Jobs) error) {
		t.Helper()
		kept, err := store.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		nic, err := dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP, Logger: logger}, dataplane.NewMemPort("mem0"))
		if err != nil {
			t.Fatal(err)
		}
		if err := nic.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s, err := New(Options{NIC: nic, Store: kept, Logger: logger})
		if err == nil {
			err = do(s.Jobs())
			s.Stop(context.Background())
		}
		if err := errors.Join(err, nic.Stop(context.Background()), kept.Close()); err != nil {
			t.Fatal(err)
		}
	}
	process(func(j *Jobs) error {
		_, err := j.Install(dataplane.JobSpec{Name: "train", Tenant: "alice", Workers: 2, Elements: 64, Slots: 16}, OriginAPI)
		return err
	})
	process(func(j *Jobs) error { return j.Remove("train") })
	for _, line := range []string{
		`msg="job installed" job=train tenant=alice workers=2 elements=64 slots=16 members=0`,
		`msg="job restored" job=train tenant=alice workers=2 elements=64 slots=16 members=0`,
		`msg="job removed" job=train tenant=alice workers=2 elements=64 slots=16 why=`,
	} {
		about, _, _ := strings.Cut(line, " job=")
		if !strings.Contains(log.String(), line) || strings.Count(log.String(), about) != 1 {
			t.Errorf("want once %q in:\n%s", line, log.String())
		}
	}
	if strings.Contains(log.String(), `msg="job installed" job=train workers`) {
		t.Errorf("the data plane's own lines are for debugging:\n%s", log.String())
	}
}
