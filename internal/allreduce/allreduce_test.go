package allreduce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gradnic/dataplane"
	"gradnic/internal/npy"
	"gradnic/wire/inet"
	wire "gradnic/wire/native"
	"gradnic/worker"
)

// team runs Run for n workers over the real NIC with memory ports.
func team(t *testing.T, n int, change func(rank int, o *Options)) ([]*Report, []error) {
	t.Helper()
	var ports []dataplane.PortSpec
	var links []*dataplane.MemPort
	job := dataplane.JobSpec{Name: "test", Workers: n, Elements: 64}
	mac := func(r int) inet.MAC { return inet.MAC{2, 0, 0, 0, 0, byte(r + 1)} }
	ip := func(r int) inet.Addr { return inet.Addr{10, 50, 0, byte(r + 1)} }
	nicMAC, nicIP := inet.MAC{6, 0, 0, 0, 0, 1}, inet.Addr{10, 50, 0, 254}
	for r := range n {
		p := dataplane.NewMemPort(fmt.Sprint(r))
		links, ports = append(links, p), append(ports, p)
		job.Members = append(job.Members, dataplane.WorkerSpec{Rank: r, MAC: mac(r), IP: ip(r), Port: r})
	}
	nic, err := dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP, FramesPerQueue: 512}, ports...)
	if err != nil {
		t.Fatal(err)
	}
	if err := nic.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := nic.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if err := nic.InstallJob(job); err != nil {
		t.Fatal(err)
	}
	reports, errs := make([]*Report, n), make([]error, n)
	var g sync.WaitGroup
	for r := range n {
		o := Options{Iterations: 2, Warmup: 1, Check: true, Deadline: 20 * time.Second, Worker: worker.Config{
			Rank: r, Workers: n, IP: ip(r), MAC: mac(r), NICMAC: nicMAC, NICIP: nicIP, Elements: 64, Link: links[r],
		}}
		change(r, &o)
		g.Go(func() { reports[r], errs[r] = Run(t.Context(), o) })
	}
	g.Wait()
	return reports, errs
}

func TestRandom(t *testing.T) {
	for _, typ := range []string{"int32", "float32"} {
		dir := t.TempDir()
		out := func(r int) string { return filepath.Join(dir, fmt.Sprint(r)) }
		reports, errs := team(t, 3, func(r int, o *Options) {
			o.Type, o.Random, o.Seed, o.Output = typ, []int{0, 1, 1000}, 7, out(r)
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for r, rep := range reports {
			if !rep.OK || len(rep.Rows) != 3 || rep.wrong() != 0 || rep.PacketElements != 64 {
				t.Fatalf("rank %d: %+v", r, rep)
			}
			row := rep.Rows[2]
			packets := uint64(2 * 16) // two iterations of 16 blocks
			if typ == "float32" {
				packets *= 2 // 16 more with exponents
			}
			if row.Bytes != 4000 || row.Iterations != 2 || row.Packets != packets || row.TimeUs < row.MinUs || row.TimeUs > row.MaxUs || row.AlgBW <= 0 {
				t.Errorf("rank %d: %+v", r, row)
			}
			if math.Abs(row.BusBW-row.AlgBW*4/3) > 1e-9 {
				t.Errorf("busbw %v of algbw %v", row.BusBW, row.AlgBW)
			}
		}
		if typ == "int32" {
			want := make([]int32, 1000)
			for r := range 3 {
				for i, v := range random[int32](7, r, 1000) {
					want[i] += v
				}
			}
			for r := range 3 {
				if got, err := npy.Load[int32](out(r)); err != nil || !slices.Equal(got, want) {
					t.Errorf("rank %d's output is not the sum: %v", r, err)
				}
			}
		}
		var b strings.Builder
		if err := reports[0].Table(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"# rank 0 of 3, 64 elements a packet, 64 outstanding", "algbw", "        4000          1000  ", "round trip p50"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("table has no %q:\n%s", want, b.String())
			}
		}
		j, err := json.Marshal(reports[0])
		if err != nil || !strings.Contains(string(j), `"algbw_gbps":`) {
			t.Errorf("%v: %s", err, j)
		}
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for r := range 2 {
		if err := npy.Save(filepath.Join(dir, fmt.Sprintf("g%d.npy", r)), random[float32](1, r, 333)); err != nil {
			t.Fatal(err)
		}
	}
	reports, errs := team(t, 2, func(_ int, o *Options) { o.Input = filepath.Join(dir, "g{rank}.npy") })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if r := reports[1]; r.Type != "float" || r.Rows[0].Elements != 333 || r.Rows[0].MaxAbsErr <= 0 || r.Rows[0].MaxAbsErr > r.Rows[0].Bound {
		t.Errorf("%+v", r.Rows[0])
	}
}

// One worker that sums other data than the others think is found by the check of each.
func TestCheckFindsAWrongSum(t *testing.T) {
	reports, errs := team(t, 2, func(r int, o *Options) {
		o.Type, o.Random, o.Seed = "int32", []int{500}, uint64(r)
	})
	for r, rep := range reports {
		if errs[r] == nil || rep.OK || rep.Rows[0].Wrong == 0 || !strings.Contains(errs[r].Error(), "wrong") {
			t.Errorf("rank %d: %v, %+v", r, errs[r], rep)
		}
	}
}

func TestMissingPeer(t *testing.T) {
	reports, errs := team(t, 2, func(r int, o *Options) {
		o.Random, o.Deadline = []int{500}, 50*time.Millisecond
		if r == 1 {
			o.Random = []int{0}
		}
	})
	if errs[1] != nil || !errors.Is(errs[0], context.DeadlineExceeded) || reports[0].OK || reports[0].Error == "" {
		t.Errorf("%v, %v; %+v", errs[0], errs[1], reports[0])
	}
}

func TestValidate(t *testing.T) {
	good := Options{Random: []int{1}, Iterations: 1, Worker: worker.Config{Workers: 2}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"nothing":          func(o *Options) { o.Random = nil },
		"both":             func(o *Options) { o.Input = "x" },
		"type":             func(o *Options) { o.Type = "int8" },
		"no iterations":    func(o *Options) { o.Iterations = 0 },
		"negative warm-up": func(o *Options) { o.Warmup = -1 },
		"negative length":  func(o *Options) { o.Random = []int{-1} },
		"huge":             func(o *Options) { o.Random = []int{MaxElements + 1} },
		"deadline":         func(o *Options) { o.Deadline = -1 },
		"unknown files":    func(o *Options) { o.Random, o.Input, o.Check = nil, "a.npy", true },
	} {
		o := good
		change(&o)
		if o.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
		if r, err := Run(t.Context(), o); err == nil || r.OK || r.Error == "" {
			t.Errorf("%s: ran", name)
		}
	}
}

// A file that cannot be read, or written in the end, is told before anybody is waited for.
func TestFilesBeforeJoining(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "g1.npy"), []byte("no array"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(o *Options){
		"g0.npy: no such file":         func(o *Options) { o.Input = filepath.Join(dir, "g{rank}.npy") },
		"not a valid .npy file":        func(o *Options) { o.Input = filepath.Join(dir, "g1.npy") },
		"output file: stat":            func(o *Options) { o.Random, o.Output = []int{1}, filepath.Join(dir, "no", "out.npy") },
		"output file: .* no directory": func(o *Options) { o.Random, o.Output = []int{1}, filepath.Join(dir, "g{rank}.npy", "out.npy") },
	} {
		o := Options{Iterations: 1, Worker: worker.Config{Workers: 2, Controller: "nowhere.invalid", IP: inet.Addr{127, 0, 0, 1}}}
		if strings.Contains(want, "directory") {
			o.Worker.Rank = 1
		}
		change(&o)
		n := NativeOptions{Iterations: 1, Input: o.Input, Random: o.Random, Output: o.Output}
		n.Worker.Rank = o.Worker.Rank
		_, serr := Run(t.Context(), o)
		_, nerr := RunNative(t.Context(), n)
		for _, err := range []error{serr, nerr} {
			if ok, _ := regexp.MatchString(want, fmt.Sprint(err)); !ok {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}

// Arrays of every type that a file can hold are read for native jobs; another type is an error that names both.
func TestNativeFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a{rank}.npy")
	if err := npy.Save(rankedName(path, 3), []float64{1, 2.5}); err != nil {
		t.Fatal(err)
	}
	r := &NativeReport{}
	r.Job.Workers = 4
	o := &NativeOptions{Input: path}
	o.Worker.Rank = 3
	if every, err := nativeInputs[float64](o, r, -1); err != nil || !slices.Equal(every[3], []float64{1, 2.5}) {
		t.Error(every, err)
	}
	if _, err := nativeInputs[uint16](o, r, -1); !errors.Is(err, npy.ErrType) || !strings.Contains(err.Error(), `"<f8", not "<f2"`) {
		t.Error(err)
	}
	if files(o, wire.BFloat16) == nil || files(&NativeOptions{Output: path}, wire.BFloat16) == nil || files(&NativeOptions{}, wire.BFloat16) != nil || files(o, wire.Float16) != nil {
		t.Error("bfloat16 in files")
	}
}

func TestInputs(t *testing.T) {
	dir := t.TempDir()
	save := func(name string, n int) string {
		p := filepath.Join(dir, name)
		if err := npy.Save(p, make([]int32, n)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	save("a0", 3)
	save("a1", 4)
	if err := os.WriteFile(filepath.Join(dir, "b0"), []byte("no"), 0o600); err != nil {
		t.Fatal(err)
	}
	if typ, err := typeOf(filepath.Join(dir, "a0")); err != nil || typ != "int32" {
		t.Errorf("%s, %v", typ, err)
	}
	if _, err := typeOf(filepath.Join(dir, "b0")); !errors.Is(err, npy.ErrFormat) {
		t.Error(err)
	}
	s := fromFiles[int32](filepath.Join(dir, "a{rank}"))
	if _, _, err := s.load(0, 2, true); err == nil || !strings.Contains(err.Error(), "one length") {
		t.Errorf("arrays of two lengths: %v", err)
	}
	save("c0", 3)
	if _, _, err := fromFiles[int32](filepath.Join(dir, "c{rank}")).load(0, 2, true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file of rank 1: %v", err)
	}
	if mine, every, err := s.load(1, 2, false); err != nil || len(mine) != 4 || every != nil {
		t.Errorf("%d %v %v", len(mine), every, err)
	}
}

// Wrong sums of a job that was used before name the cause, which nothing else shows.
func TestWrongSumsWithoutAController(t *testing.T) {
	if err := wrongSums(7, ""); !strings.Contains(err.Error(), "7 elements of the sums are wrong: without a controller a job is for one run") {
		t.Error(err)
	}
	if err := wrongSums(7, "10.1.0.1"); err.Error() != "7 elements of the sums are wrong" {
		t.Error(err)
	}
}
