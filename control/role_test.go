package control

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	apiv1 "gradnic/control/api/v1"
	"gradnic/control/card"
	"gradnic/dataplane"
)

// authority is a CA that signs certificates for a test.
type authority struct {
	dir, file string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
	serial    int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), serial: 1}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = filepath.Join(a.dir, "ca.pem")
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue signs a certificate. unit may be empty.
func (a *authority) issue(t *testing.T, name, unit string, ends time.Time) TLSFiles {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.serial++
	template := &x509.Certificate{SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: ends, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	if unit != "" {
		template.Subject.OrganizationalUnit = []string{unit}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(t.TempDir(), "end")
	writePEM(t, base+".pem", "CERTIFICATE", der)
	writePEM(t, base+".key", "PRIVATE KEY", private)
	return TLSFiles{Cert: base + ".pem", Key: base + ".key", CA: a.file}
}

// guarded is a control plane on TCP with certificates.
func guarded(t *testing.T, a *authority) (address string, server *Server) {
	t.Helper()
	nic, err := dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP}, dataplane.NewMemPort("mem0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := nic.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	config, err := a.issue(t, "nic", "", time.Now().Add(time.Hour)).Server()
	if err != nil {
		t.Fatal(err)
	}
	if server, err = New(Options{NIC: nic, TLS: config}); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), "tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop(context.Background())
		if err := errors.Join(<-served, nic.Stop(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return "tcp://" + l.Addr().String(), server
}

func dialTLS(t *testing.T, address string, files TLSFiles) *Client {
	t.Helper()
	c, err := DialTLS(address, files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A tenant's certificate neither lists, changes nor watches another's jobs, and cannot
// tell that they are there; an administrator sees all.
func TestTenantsSeeOnlyTheirOwn(t *testing.T) {
	a := newAuthority(t)
	address, _ := guarded(t, a)
	hour := time.Now().Add(time.Hour)
	alice, bob, admin := dialTLS(t, address, a.issue(t, "alice", "", hour)), dialTLS(t, address, a.issue(t, "bob", "", hour)), dialTLS(t, address, a.issue(t, "root", AdminUnit, hour))
	ctx := t.Context()
	watch, err := bob.WatchJobs(ctx, &apiv1.WatchJobsRequest{})
	if err != nil {
		t.Fatal(err)
	}

	spec := jobSpec("train", 3)
	spec.Members = spec.Members[:2]
	r, err := alice.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: spec, Lease: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.GetJob().GetSpec().GetTenant(); got != "alice" {
		t.Errorf("tenant %q is not the certificate's", got)
	}
	if again, err := alice.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: spec}); err != nil || again.GetCreated() {
		t.Errorf("the same again: %v, %v", again, err)
	}
	other := jobSpec("mine", 1)
	other.Tenant, other.Members = "bob", nil
	_, err = alice.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: other})
	code(t, err, codes.PermissionDenied)

	for what, call := range map[string]func() error{
		"get":    func() error { _, err := bob.GetJob(ctx, &apiv1.GetJobRequest{Name: "train"}); return err },
		"slots":  func() error { _, err := bob.ListSlots(ctx, &apiv1.ListSlotsRequest{Job: "train"}); return err },
		"groups": func() error { _, err := bob.ListGroups(ctx, &apiv1.ListGroupsRequest{Job: "train"}); return err },
		"remove": func() error { _, err := bob.RemoveJob(ctx, &apiv1.RemoveJobRequest{Name: "train"}); return err },
		"renew":  func() error { _, err := bob.RenewLease(ctx, &apiv1.RenewLeaseRequest{Name: "train"}); return err },
		"add": func() error {
			_, err := bob.AddWorker(ctx, &apiv1.AddWorkerRequest{Job: "train", Worker: member(2)})
			return err
		},
	} {
		theirs := call()
		code(t, theirs, codes.NotFound)
		if !strings.Contains(theirs.Error(), "no such job") {
			t.Errorf("%s: %v", what, theirs)
		}
	}
	_, err = bob.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: jobSpec("train", 5)})
	code(t, err, codes.AlreadyExists)
	if strings.Contains(err.Error(), "alice") || strings.Contains(err.Error(), "workers") {
		t.Errorf("it tells of the other's job: %v", err)
	}
	steal := jobSpec("steal", 2)
	_, err = bob.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: steal})
	code(t, err, codes.AlreadyExists)
	if strings.Contains(err.Error(), "train") {
		t.Errorf("it tells of the other's job: %v", err)
	}
	for what, call := range map[string]func() error{
		"ports":    func() error { _, err := bob.ListPorts(ctx, &apiv1.ListPortsRequest{}); return err },
		"counters": func() error { _, err := bob.GetCounters(ctx, &apiv1.GetCountersRequest{}); return err },
		"impair": func() error {
			_, err := bob.ClearImpairment(ctx, &apiv1.ClearImpairmentRequest{})
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", what, err)
		}
	}
	if list, err := bob.ListJobs(ctx, &apiv1.ListJobsRequest{}); err != nil || len(list.GetJobs()) != 0 {
		t.Errorf("bob lists %v, %v", list, err)
	}
	if list, err := bob.ListTenants(ctx, &apiv1.ListTenantsRequest{}); err != nil || len(list.GetTenants()) != 0 {
		t.Errorf("bob lists the tenants %v, %v", list, err)
	}
	if list, err := alice.ListTenants(ctx, &apiv1.ListTenantsRequest{}); err != nil || len(list.GetTenants()) != 1 || list.GetTenants()[0].GetWorkers() != 2 {
		t.Errorf("alice lists the tenants %v, %v", list, err)
	}
	if list, err := admin.ListJobs(ctx, &apiv1.ListJobsRequest{}); err != nil || len(list.GetJobs()) != 1 {
		t.Errorf("the administrator lists %v, %v", list, err)
	}
	if _, err := admin.ListPorts(ctx, &apiv1.ListPortsRequest{}); err != nil {
		t.Error(err)
	}
	// Of all that alice did, bob's watch shows nothing: its first event is bob's own job.
	if _, err := alice.RemoveJob(ctx, &apiv1.RemoveJobRequest{Name: "train"}); err != nil {
		t.Fatal(err)
	}
	if _, err := bob.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: steal}); err != nil {
		t.Fatal(err)
	}
	if m, err := watch.Recv(); err != nil || m.GetName() != "steal" || m.GetJob().GetSpec().GetTenant() != "bob" {
		t.Errorf("bob sees %v, %v", m, err)
	}
}

func TestWithoutRightCertificateNobodyComesIn(t *testing.T) {
	a, foreign := newAuthority(t), newAuthority(t)
	address, server := guarded(t, a)
	hour := time.Now().Add(time.Hour)
	stranger := foreign.issue(t, "alice", AdminUnit, hour)
	stranger.CA = a.file
	for what, files := range map[string]TLSFiles{
		"of another CA": stranger,
		"expired":       a.issue(t, "alice", AdminUnit, time.Now().Add(-time.Minute)),
	} {
		c := dialTLS(t, address, files)
		if _, err := c.ListJobs(t.Context(), &apiv1.ListJobsRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Dial(address); err == nil || !strings.Contains(err.Error(), "three files are needed") {
		t.Errorf("a client without certificates: %v", err)
	}
	nameless := dialTLS(t, address, a.issue(t, "not a name!", "", hour))
	_, err := nameless.ListJobs(t.Context(), &apiv1.ListJobsRequest{})
	code(t, err, codes.Unauthenticated)

	// Plain TCP to a server without certificates is nobody's way in either.
	plain, err := New(Options{NIC: server.NIC()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- plain.Serve(l) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := conn.Read(make([]byte, 64)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("plain TCP was answered: %d bytes, %v", n, err)
	}
	plain.Stop(t.Context())
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// What tenants may call exists: a method that is renamed must not leave its right behind.
func TestTenantMethodsExist(t *testing.T) {
	methods := map[string]bool{}
	for service, info := range newRig(t).server.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			methods["/"+service+"/"+m.Name] = true
		}
	}
	for method := range forTenants {
		if !methods[method] {
			t.Errorf("%s is no method", method)
		}
	}
}

func TestAdmission(t *testing.T) {
	r := newRig(t)
	jobs := r.server.Jobs()
	spec := dataplane.JobSpec{Name: "a1", Tenant: "a", Workers: 2, Elements: 64, Slots: 100}
	bytes, err := r.nic.SlotBytes(spec)
	if err != nil || bytes < 100*2*64*4 {
		t.Fatalf("%d bytes, %v", bytes, err)
	}
	jobs.SetLimits(Limits{Memory: 5 * bytes, Tenants: map[string]Quota{"a": {Jobs: 2, Slots: 250}, EachTenant: {Memory: 2 * bytes}}})
	install := func(name, tenant string, slots int, want codes.Code, says string) {
		t.Helper()
		_, err := jobs.Install(dataplane.JobSpec{Name: name, Tenant: tenant, Workers: 2, Elements: 64, Slots: slots}, OriginAPI)
		if status.Code(err) != want || want != codes.OK && !strings.Contains(err.Error(), says) {
			t.Fatalf("%s: %v, want %v with %q", name, err, want, says)
		}
	}
	install("a1", "a", 100, codes.OK, "")
	install("a1", "a", 100, codes.OK, "") // the same again takes nothing more
	install("a2", "a", 151, codes.ResourceExhausted, "151 slots: tenant a has 100 of 250: 150 would fit")
	install("a2", "a", 150, codes.OK, "")
	install("a3", "a", 1, codes.ResourceExhausted, "tenant a has 2 of 2 jobs")
	install("b1", "b", 100, codes.OK, "")
	install("b2", "b", 120, codes.ResourceExhausted, "tenant b: ")
	install("b2", "b", 99, codes.OK, "") // what the error said would fit
	install("c1", "c", 100, codes.ResourceExhausted, "all jobs: ")
	if err := jobs.Remove("a2"); err != nil {
		t.Fatal(err)
	}
	install("c1", "c", 100, codes.OK, "")
	jobs.SetLimits(Limits{})
	install("a9", "a", 8000, codes.OK, "")
}

// A card's figures are of all jobs together, whoever has them; a job that is there already does not count twice.
func TestCardCountsAllJobs(t *testing.T) {
	r := newRig(t)
	jobs := r.server.Jobs()
	profile, err := card.Parse("mine", []byte("name: mine\njobs: {value: 3, source: x}\nslots: {value: 100, source: x}\nslot_memory: {value: 40960, source: x}\n"))
	if err != nil {
		t.Fatal(err)
	}
	jobs.SetLimits(Limits{Card: profile})
	for _, c := range []struct {
		name            string
		elements, slots int
		want            codes.Code
		says            string
	}{
		{"a", 64, 40, codes.OK, ""}, // 40 slots of 64 int32, two versions: 20480 bytes
		{"a", 64, 40, codes.OK, ""},
		{"b", 64, 61, codes.ResourceExhausted, "61 slots"},
		{"b", 256, 11, codes.ResourceExhausted, "bytes"}, // 22528
		{"b", 256, 10, codes.OK, ""},
		{"c", 64, 1, codes.ResourceExhausted, "bytes"},
	} {
		_, err := jobs.Install(dataplane.JobSpec{Name: c.name, Tenant: c.name, Workers: 2, Elements: c.elements, Slots: c.slots}, OriginAPI)
		if status.Code(err) != c.want || c.want != codes.OK && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s, %d slots of %d: %v, want %v with %q", c.name, c.slots, c.elements, err, c.want, c.says)
		}
	}
}

func TestParseQuota(t *testing.T) {
	tenant, q, err := ParseQuota("team-a=slots:4096,jobs:3,packets:200000,memory:64MiB")
	if err != nil || tenant != "team-a" || q != (Quota{3, 4096, 64 << 20, 200000}) {
		t.Errorf("%s %+v, %v", tenant, q, err)
	}
	if tenant, q, err := ParseQuota("*=memory:1000"); err != nil || tenant != EachTenant || q.Memory != 1000 {
		t.Errorf("%s %+v, %v", tenant, q, err)
	}
	for _, wrong := range []string{"", "a", "=jobs:1", "a b=jobs:1", "a=jobs", "a=jobs:0", "a=jobs:x", "a=jobs:1,jobs:2", "a=memory:1MB", "a=memory:9999999999GiB", "a=rank:1", "a=packets:0", "a=packets:100000001", "a="} {
		if _, _, err := ParseQuota(wrong); err == nil {
			t.Errorf("%q was read", wrong)
		}
	}
}
