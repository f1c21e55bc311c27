package control

import (
	"context"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	apiv1 "gradnic/control/api/v1"
	"gradnic/dataplane"
	"gradnic/wire/inet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	nicMAC = inet.MAC{0x02, 0x67, 10, 50, 0, 254}
	nicIP  = inet.Addr{10, 50, 0, 254}
)

// rig is a running NIC with two mem ports, its control plane on a Unix socket, and a client of it.
type rig struct {
	nic    *dataplane.NIC
	ports  []*dataplane.MemPort
	server *Server
	client *Client
	socket string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{ports: []*dataplane.MemPort{dataplane.NewMemPort("mem0"), dataplane.NewMemPort("mem1")}}
	var err error
	r.nic, err = dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP}, r.ports[0], r.ports[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := r.nic.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.nic.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if r.server, err = New(Options{NIC: r.nic, Version: "v-test"}); err != nil {
		t.Fatal(err)
	}
	r.client, r.socket = serve(t, r.server)
	return r
}

// serve has a server serve on a Unix socket until the test ends.
func serve(t *testing.T, server *Server) (c *Client, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "run", "api.sock")
	l, err := Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	if c, err = Dial(socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		server.Stop(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c, socket
}

func member(rank uint32) *apiv1.WorkerSpec {
	mac := inet.MAC{2, 0, 0, 0, 1, byte(rank)}
	ip := inet.Addr{10, 50, 0, byte(1 + rank)}
	return &apiv1.WorkerSpec{Rank: rank, Mac: mac.String(), Ipv4: ip.String()}
}

func jobSpec(name string, workers uint32) *apiv1.JobSpec {
	spec := &apiv1.JobSpec{Name: name, Workers: workers, Elements: 64, Slots: 16}
	for rank := range workers {
		spec.Members = append(spec.Members, member(rank))
	}
	return spec
}
