package metrics

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/control"
	"gradnic/dataplane"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a running NIC with a mem port, one job of two workers, and its metrics on TCP.
type rig struct {
	nic  *dataplane.NIC
	port *dataplane.MemPort
	url  string
}

func newRig(t *testing.T, pprof bool) *rig {
	t.Helper()
	r := &rig{port: dataplane.NewMemPort("mem0")}
	var err error
	r.nic, err = dataplane.New(dataplane.Config{MAC: inet.MAC{2, 0x67, 10, 50, 0, 254}, IP: inet.Addr{10, 50, 0, 254}}, r.port)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.nic.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	api, err := control.New(control.Options{NIC: r.nic, Version: "v-test"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Jobs().Install(dataplane.JobSpec{Name: "train", Tenant: "a", Workers: 2, Elements: 64, Slots: 16, Members: []dataplane.WorkerSpec{
		{Rank: 0, MAC: inet.MAC{2, 0, 0, 0, 1, 0}, IP: inet.Addr{10, 50, 0, 1}, Port: -1},
		{Rank: 1, MAC: inet.MAC{2, 0, 0, 0, 1, 1}, IP: inet.Addr{10, 50, 0, 2}, Port: -1},
	}}, control.OriginAPI); err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Server: api, Pprof: pprof})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		s.Stop(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := r.nic.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// send gives the NIC a contribution of a worker; rank 9 is nobody.
func (r *rig) send(t *testing.T, rank byte) {
	t.Helper()
	frame := make([]byte, switchml.FrameLen(64))
	n := switchml.PutRequest(frame, switchml.Request{Elements: 64,
		Worker: switchml.Endpoint{MAC: inet.MAC{2, 0, 0, 0, 1, rank}, IP: inet.Addr{10, 50, 0, 1 + rank}, Port: 4000},
		Switch: switchml.Endpoint{MAC: inet.MAC{2, 0x67, 10, 50, 0, 254}, IP: inet.Addr{10, 50, 0, 254}, Port: switchml.PortBase}})
	if err := r.port.Send(frame[:n]); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) get(t *testing.T, path string) (int, string) {
	t.Helper()
	resp, err := http.Get(r.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// What is scraped is what the lanes counted, to the frame.
func TestScrape(t *testing.T) {
	r := newRig(t, false)
	r.send(t, 0)
	r.send(t, 0)
	r.send(t, 1)
	r.send(t, 9)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		snap := r.nic.Snapshot()
		if snap.Total.Accounted() == 4 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", snap.Total)
		}
	}
	code, body := r.get(t, "/metrics")
	for _, line := range []string{
		`gradnic_info{ip="10.50.0.254",mac="02:67:0a:32:00:fe",version="v-test"} 1`,
		`gradnic_unrestored_jobs 0`,
		`gradnic_port_received_frames_total{port="mem0"} 4`,
		`gradnic_port_contributed_frames_total{port="mem0"} 2`,
		`gradnic_port_duplicate_frames_total{port="mem0"} 1`,
		`gradnic_port_dropped_frames_total{port="mem0",reason="unknown-worker"} 1`,
		`gradnic_queue_received_frames_total{port="mem0",queue="0"} 4`,
		`gradnic_queue_transmitted_frames_total{port="mem0",queue="0"} 2`,
		`gradnic_port_state{port="mem0",state="up"} 1`,
		`gradnic_port_state{port="mem0",state="broken"} 0`,
		`gradnic_lane_received_frames_total{lane="0"} 4`,
		`gradnic_lane_results_total{lane="0"} 1`,
		`gradnic_job_workers{job="train",tenant="a"} 2`,
		`gradnic_job_joined_workers{job="train",tenant="a"} 2`,
		`gradnic_job_results_total{job="train",tenant="a"} 1`,
		`gradnic_job_slots{job="train",state="free",tenant="a"} 31`,
		`gradnic_job_slots{job="train",state="complete",tenant="a"} 1`,
		`gradnic_worker_received_frames_total{job="train",rank="0",tenant="a"} 2`,
		`gradnic_worker_duplicate_frames_total{job="train",rank="0",tenant="a"} 1`,
		`gradnic_worker_sent_results_total{job="train",rank="1",tenant="a"} 1`,
		`gradnic_worker_resent_results_total{job="train",rank="0",tenant="a"} 0`,
		`gradnic_worker_last_contributions_total{job="train",rank="0",tenant="a"} 0`,
		`gradnic_worker_last_contributions_total{job="train",rank="1",tenant="a"} 1`,
		`gradnic_job_slot_duration_seconds_bucket{job="train",tenant="a",le="+Inf"} 1`,
		`gradnic_job_slot_duration_seconds_bucket{job="train",tenant="a",le="17.179869183"} 1`,
		`gradnic_job_slot_duration_seconds_count{job="train",tenant="a"} 1`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if code != http.StatusOK || t.Failed() {
		t.Errorf("status %d:\n%s", code, body)
	}
	if promtool, err := exec.LookPath("promtool"); err == nil {
		cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
		cmd.Stdin = strings.NewReader(body)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Errorf("promtool: %v\n%s", err, out.String())
		}
	}
}

func TestPprofIsOffUnlessAskedFor(t *testing.T) {
	for _, on := range []bool{false, true} {
		r := newRig(t, on)
		code, _ := r.get(t, "/debug/pprof/")
		if (code == http.StatusOK) != on {
			t.Errorf("pprof %v: status %d", on, code)
		}
		if code, body := r.get(t, "/healthz"); code != http.StatusOK || body != "ok\n" {
			t.Errorf("%d %q", code, body)
		}
		if code, _ := r.get(t, "/nothing"); code != http.StatusNotFound {
			t.Errorf("nothing: %d", code)
		}
		resp, err := http.Post(r.url+"/metrics", "text/plain", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST: %d", resp.StatusCode)
		}
	}
}

// The page shows what is there, escapes what others have named, and loads nothing.
func TestPage(t *testing.T) {
	r := newRig(t, false)
	r.send(t, 0)
	r.send(t, 9)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if snap := r.nic.Snapshot(); snap.Total.Accounted() == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the frames did not arrive")
		}
	}
	resp, err := http.Get(r.url + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	body := string(b)
	for _, want := range []string{
		"<title>gradnic 10.50.0.254</title>", "<tr><td>train</td><td class=\"l\">a</td><td>1 of 2</td><td>1 of 32</td><td>1</td><td>0</td>",
		"<td class=\"l bad\">1</td></tr>", "<tr><td>unknown-worker</td><td>1</td></tr>", "02:00:00:00:01:01 10.50.0.2", "<td class=\"l \">up</td>",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in:\n%s", want, body)
		}
	}
	if policy := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none';") {
		t.Errorf("policy %q", policy)
	}
	for _, outside := range []string{"src=", "href=", "url(", "@import", "http://", "https://"} {
		if strings.Contains(body, outside) {
			t.Errorf("the page has %q: it is to load nothing", outside)
		}
	}
}
