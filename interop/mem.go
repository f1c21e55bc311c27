package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"gradnic/dataplane"
	"gradnic/wire/layout"
)

// Mem is gradnic's data plane in this process, with one port of memory.
type Mem struct {
	nic   *dataplane.NIC
	port  *dataplane.MemPort
	sent  uint64
	taken uint64
	at    []time.Time // the frames of the last Collect came
}

// OpenMem starts a data plane with the job that the suite is for.
func OpenMem(ctx context.Context, o *Options, s *Suite) (*Mem, error) {
	m := &Mem{port: dataplane.NewMemPort("wire")}
	cfg := dataplane.Config{Layouts: s.layouts(), MAC: o.NIC.MAC, IP: o.NIC.IP, Wait: dataplane.Interrupt, LongestFrame: 9014, FramesPerQueue: 1024}
	var err error
	if m.nic, err = dataplane.New(cfg, m.port); err != nil {
		return nil, fmt.Errorf("target mem: %w", err)
	}
	if err = m.nic.Start(ctx); err == nil {
		err = m.nic.InstallJob(Job(o, s))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("target mem: %w", err), m.nic.Stop(ctx))
	}
	return m, nil
}

// Job is what a gradnic under test must have installed.
func Job(o *Options, s *Suite) dataplane.JobSpec {
	j := dataplane.JobSpec{Name: "interop-" + s.Name, Workers: o.workers(), Elements: o.Elements, Slots: o.Slots}
	for _, l := range s.layouts() {
		j.Layout = l.Name
	}
	if s.layout.Rules == layout.Native {
		j.Protocol, j.Native = dataplane.ProtocolNative, &dataplane.NativeSpec{ID: 1, Deadline: time.Minute}
		return j
	}
	for r := range j.Workers {
		w := o.worker(r)
		if s.layout.EtherType != 0 {
			w.IP = layout.StationIP(w.MAC)
		}
		j.Members = append(j.Members, dataplane.WorkerSpec{Rank: r, MAC: w.MAC, IP: w.IP, Port: -1})
	}
	return j
}

// layouts are those that a gradnic under test must have: none for the protocols' own frames.
func (s *Suite) layouts() []*layout.Layout {
	if s.own() {
		return nil
	}
	return []*layout.Layout{s.layout}
}

// Send implements Target.
func (m *Mem) Send(frame []byte) error {
	if err := m.port.Send(frame); err != nil {
		return fmt.Errorf("target mem: %w", err)
	}
	m.sent++
	return nil
}

// Collect implements Target. The data plane counts a frame as received when it has ended with it, so that what it sent
// by then is all that there is.
func (m *Mem) Collect(int) (got [][]byte, err error) {
	buf := make([]byte, 1<<14)
	m.at = nil
	until := time.Now().Add(5 * time.Second)
	for {
		s := m.nic.Snapshot()
		done := s.Total.Received >= m.sent && s.Total.InFlight == 0 && m.taken >= s.Total.Transmitted
		wait := time.Now().Add(-time.Second)
		if !done {
			wait = time.Now().Add(200 * time.Microsecond)
		}
		n, err := m.port.Recv(buf, wait)
		switch {
		case err == nil:
			m.taken++
			m.at = append(m.at, time.Now())
			got = append(got, append([]byte(nil), buf[:n]...))
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return got, fmt.Errorf("target mem: %w", err)
		case done:
			return got, nil
		case time.Now().After(until):
			return got, fmt.Errorf("target mem: %d frames were sent, %d received", m.sent, s.Total.Received)
		}
	}
}

func (m *Mem) now() time.Time    { return time.Now() }
func (m *Mem) came() []time.Time { return m.at }

// Limits implements Target.
func (m *Mem) Limits() Limits { return Limits{Longest: 9014, Clock: true} }

// Close implements Target.
func (m *Mem) Close() error {
	err := m.nic.Stop(context.Background())
	s := m.nic.Snapshot()
	return errors.Join(err, s.Check())
}
