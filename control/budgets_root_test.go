package control

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	apiv1 "gradnic/control/api/v1"
	"gradnic/control/card"
	"gradnic/dataplane"
	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
	"gradnic/xdp"
)

// budgetRig is a NIC on two veths and its registry.
type budgetRig struct {
	t     *testing.T
	nic   *dataplane.NIC
	jobs  *Jobs
	api   *Server
	wires [2]int // packet sockets at the far ends
	begin time.Time
}

// refilled is how many packets a budget of one a second may have taken beyond its burst: none in a test that takes less
// than a second.
func (r *budgetRig) refilled() uint64 { return uint64(time.Since(r.begin) / time.Second) }

// budgetBurst is half of what a queue's receive ring holds.
const budgetBurst = 64

func newBudgetRig(t *testing.T, limits Limits) *budgetRig {
	t.Helper()
	lab := netlabtest.New(t, "budget")
	inside, outside := netlabtest.Namespace(t, lab, "nic"), netlabtest.Namespace(t, lab, "wire")
	r := &budgetRig{t: t, begin: time.Now()}
	var ports []dataplane.PortSpec
	for i := range r.wires {
		near, far := fmt.Sprint("p", i), fmt.Sprint("w", i)
		netlabtest.Veth(t, lab, netlab.End{NS: inside, Name: near}, netlab.End{NS: outside, Name: far})
		ports = append(ports, dataplane.XDPPort{Interface: near, Namespace: inside.Do})
		index, _, err := outside.Interface(far)
		if err != nil {
			t.Fatal(err)
		}
		if err := outside.Do(func() (err error) {
			if r.wires[i], err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
				return err
			}
			return unix.Bind(r.wires[i], &unix.SockaddrLinklayer{Ifindex: index})
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(r.wires[i]) })
	}
	var err error
	if r.nic, err = dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP, FramesPerQueue: 4 * budgetBurst, Wait: dataplane.Interrupt}, ports...); err != nil {
		t.Fatal(err)
	}
	server, err := New(Options{NIC: r.nic, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	r.api, r.jobs = server, server.Jobs()
	if err := r.nic.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Stop(context.Background())
		if err := r.nic.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *budgetRig) worker(n byte) dataplane.WorkerSpec {
	return dataplane.WorkerSpec{MAC: inet.MAC{2, 0, 0, 0, 9, n}, IP: inet.Addr{10, 50, 0, n}, Port: -1}
}

func (r *budgetRig) install(name, tenant string, n byte) {
	r.t.Helper()
	if _, err := r.jobs.Install(dataplane.JobSpec{Name: name, Tenant: tenant, Workers: 1, Elements: 64, Slots: 8, Members: []dataplane.WorkerSpec{r.worker(n)}}, OriginAPI); err != nil {
		r.t.Fatal(err)
	}
}

// send sends frames of a worker by a port, slowly enough that the lane takes them all.
func (r *budgetRig) send(port int, n byte, frames int) {
	r.t.Helper()
	w := r.worker(n)
	f := make([]byte, switchml.FrameLen(64))
	switchml.PutRequest(f, switchml.Request{
		Worker:   switchml.Endpoint{MAC: w.MAC, IP: w.IP, Port: 4000},
		Switch:   switchml.Endpoint{MAC: nicMAC, IP: nicIP, Port: switchml.PortBase},
		Elements: 64, Offload: true,
	})
	for i := range frames {
		if _, err := unix.Write(r.wires[port], f); err != nil {
			r.t.Fatal(err)
		}
		if i%16 == 15 {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// charged is what a port took and dropped of a budget, which gets a packet a second; it waits until that is as many frames
// as are wanted.
func (r *budgetRig) charged(port int, name string, taken, dropped uint64) {
	r.t.Helper()
	var got dataplane.BudgetSnapshot
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		for _, b := range r.nic.Snapshot().Ports[port].Budgets {
			if b.Name == name {
				got = b
			}
		}
		if got.Taken+got.Dropped == taken+dropped && got.Taken >= taken && got.Taken <= taken+min(dropped, r.refilled()) {
			return
		}
	}
	r.t.Fatalf("port %d, budget %s: %d taken, %d dropped; want %d, %d (%+v)", port, name, got.Taken, got.Dropped, taken, dropped, r.nic.Snapshot().Ports[port].Budgets)
}

// Quotas of packets become budgets of the ports, and follow jobs, workers and limits as they come and go.
func TestPacketQuotas(t *testing.T) {
	const n, over = 200, 200 - budgetBurst
	r := newBudgetRig(t, Limits{Tenants: map[string]Quota{"a": {Packets: 1}}, Strays: 1})
	r.install("ja", "a", 1)
	r.install("jb", "b", 2)
	r.install("jn", "", 3)
	r.send(0, 1, n)
	r.charged(0, "a", budgetBurst, over)
	r.send(0, 2, n)
	r.charged(0, "b", n, 0)
	r.send(0, 3, n)
	r.charged(0, NobodyBudget, n, 0)
	r.send(0, 9, n)
	r.charged(0, StrayBudget, budgetBurst, over)
	// As long as nobody knows where a's worker is, it is charged wherever it comes in.
	r.send(1, 1, 1)
	r.charged(1, "a", 1, 0)
	r.jobs.Tend()
	r.send(1, 1, n)
	r.charged(1, StrayBudget, budgetBurst, over)
	r.charged(1, "a", 1, 0)
	infos := r.jobs.Tenants()
	if len(infos) != 3 || infos[1].Name != "a" || infos[1].Taken+infos[1].Dropped != n+1 || infos[1].Taken < budgetBurst+1 || infos[1].Taken > budgetBurst+1+r.refilled() || infos[1].Quota.Packets != 1 || infos[2].Taken != n {
		t.Errorf("tenants: %+v", infos)
	}
	// The job goes, its worker is a stray; it comes back, and is not.
	if err := r.jobs.Remove("ja"); err != nil {
		t.Fatal(err)
	}
	r.send(0, 1, 10)
	r.charged(0, StrayBudget, budgetBurst, over+10)
	r.install("ja", "a", 1)
	r.send(0, 1, n)
	r.charged(0, "a", budgetBurst, over)
	// Limits change: a has none, b has one, then nobody has.
	r.jobs.SetLimits(Limits{Tenants: map[string]Quota{EachTenant: {Packets: 1}, "a": {}}})
	r.send(0, 1, n)
	r.charged(0, "a", budgetBurst+n, over)
	r.send(0, 2, n)
	r.charged(0, "b", n+budgetBurst, over)
	for _, b := range r.nic.Snapshot().Ports[0].Budgets {
		want := map[string]uint64{StrayBudget: DefaultStrays, "b": 1}[b.Name]
		if b.Rate != want {
			t.Errorf("budget %s: rate %d, want %d", b.Name, b.Rate, want)
		}
	}
	r.jobs.SetLimits(Limits{})
	if got := r.nic.Snapshot().Ports[0].Budgets; len(got) != 0 {
		t.Errorf("no limits: %+v", got)
	}
	r.send(0, 9, n) // dropped by the lane, as it knows no such worker
	until := time.Now().Add(20 * time.Second)
	for r.nic.Snapshot().Total.Drops["unknown-worker"] < n {
		if time.Now().After(until) {
			t.Fatalf("drops: %v", r.nic.Snapshot().Total.Drops)
		}
		time.Sleep(time.Millisecond)
	}
}

// Two tenants claim one address: who had it first is charged, so that nobody is made to pay for another.
func TestAddressOfTwoTenantsIsChargedToTheFirst(t *testing.T) {
	r := newBudgetRig(t, Limits{Tenants: map[string]Quota{EachTenant: {Packets: 1}}})
	for i, tenant := range []string{"victim", "a-later-one"} {
		w := r.worker(7)
		spec := dataplane.JobSpec{
			Name: fmt.Sprint("j", i), Tenant: tenant, Protocol: dataplane.ProtocolNative, Workers: 1, Elements: 4, Slots: 8,
			Members: []dataplane.WorkerSpec{w}, Native: &dataplane.NativeSpec{},
		}
		if _, err := r.jobs.Install(spec, OriginAPI); err != nil {
			t.Fatal(err)
		}
	}
	r.send(0, 7, 10)
	r.charged(0, "victim", 10, 0)
	r.charged(0, "a-later-one", 0, 0)
}

// The API shows tenants to an administrator, with what they take and may take.
func TestListTenants(t *testing.T) {
	r := newRig(t)
	r.server.Jobs().SetLimits(Limits{Tenants: map[string]Quota{"team-a": {Jobs: 3, Slots: 64, Memory: 1 << 20, Packets: 5000}, "team-z": {Jobs: 1}}})
	for name, tenant := range map[string]string{"a": "team-a", "n": ""} {
		spec := jobSpec(name, 1)
		spec.Tenant = tenant
		if name == "n" {
			spec.Members = nil
		}
		if _, err := r.client.InstallJob(t.Context(), &apiv1.InstallJobRequest{Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	m, err := r.client.ListTenants(t.Context(), &apiv1.ListTenantsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.GetTenants()) != 3 {
		t.Fatalf("tenants: %v", m)
	}
	nobody, a, z := m.GetTenants()[0], m.GetTenants()[1], m.GetTenants()[2]
	if nobody.GetName() != "" || nobody.GetJobs() != 1 || nobody.GetSlots() != 16 || nobody.GetWorkers() != 0 || nobody.GetQuota().GetJobs() != 0 {
		t.Errorf("nobody: %v", nobody)
	}
	if q := a.GetQuota(); a.GetName() != "team-a" || a.GetWorkers() != 1 || a.GetMemory() == 0 || q.GetJobs() != 3 || q.GetSlots() != 64 || q.GetMemory() != 1<<20 || q.GetPackets() != 5000 {
		t.Errorf("team-a: %v", a)
	}
	if z.GetName() != "team-z" || z.GetJobs() != 0 || z.GetQuota().GetJobs() != 1 {
		t.Errorf("team-z: %v", z)
	}
}

// Ports are paced as long as the card says how fast its link is and it is asked for.
func TestCardPace(t *testing.T) {
	r := newRig(t)
	jobs := r.server.Jobs()
	slow, err := card.Parse("slow", []byte("name: slow\nlink_rate: {value: 2000000, source: a test}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r.install(t, jobSpec("j", 1))
	// 24 results of some 300 bytes at 2 Mbit/s are 32 ms, less the burst.
	rounds := func() time.Duration {
		stop, results := make(chan struct{}), 0
		begin := time.Now()
		time.AfterFunc(100*time.Millisecond, func() { close(stop) })
		if err := r.reduce(stop, &results); err != nil {
			t.Fatal(err)
		}
		return time.Since(begin) / time.Duration(results)
	}
	const link = 1300 * time.Microsecond // of one result: (308 + 24) * 8 / 2e6 s
	for _, c := range []struct {
		limits Limits
		paced  bool
	}{{Limits{Card: slow}, false}, {Limits{Card: slow, Pace: true}, true}, {Limits{Pace: true}, false}} {
		jobs.SetLimits(c.limits)
		if jobs.paced != c.paced {
			t.Errorf("%+v: paced %t", c.limits, jobs.paced)
		}
		if took := rounds(); c.paced && took < link*8/10 {
			t.Errorf("paced: a result every %v, the link carries one every %v", took, link)
		}
	}
}

// Jobs whose workers or tenants the steering program could not tell apart are refused: else a tenant with many workers
// would keep all others' budgets from being set.
func TestSendersThatBudgetsCannotKnow(t *testing.T) {
	r := newRig(t)
	jobs := r.server.Jobs()
	jobs.SetLimits(Limits{Tenants: map[string]Quota{EachTenant: {Packets: 1000}}})
	install := func(name, tenant string, workers int) error {
		_, err := jobs.Install(dataplane.JobSpec{
			Name: name, Tenant: tenant, Protocol: dataplane.ProtocolNative, Workers: workers, Elements: 1, Slots: 1, Native: &dataplane.NativeSpec{},
		}, OriginAPI)
		return err
	}
	for i := range xdp.MaxSources/dataplane.MaxNativeWorkers - 1 {
		if err := install(fmt.Sprint("many", i), "a", dataplane.MaxNativeWorkers); err != nil {
			t.Fatal(err)
		}
	}
	if err := install("last", "a", dataplane.MaxNativeWorkers-2); err != nil {
		t.Fatal(err)
	}
	if err, want := install("b", "b", 3), "65534 of the 65536 that packet budgets know: 2 would fit"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("3 more workers: %v, want %q", err, want)
	}
	if err := install("b", "b", 2); err != nil {
		t.Errorf("2 more workers: %v", err)
	}
	for _, job := range jobs.List() {
		if err := jobs.Remove(job.Name); err != nil {
			t.Fatal(err)
		}
	}
	for i := range xdp.MaxBudgets {
		if err := install(fmt.Sprint("j", i), fmt.Sprint("t", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := install("again", "t5", 1); err != nil {
		t.Errorf("another job of a tenant that has one: %v", err)
	}
	if err := install("more", "one-more", 1); err == nil || !strings.Contains(err.Error(), "1023 tenants have packet budgets") {
		t.Errorf("one tenant more than budgets: %v", err)
	}
	jobs.SetLimits(Limits{})
	if err := install("more", "one-more", 1); err != nil {
		t.Errorf("without budgets: %v", err)
	}
}
