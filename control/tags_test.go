package control

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	apiv1 "gradnic/control/api/v1"
	"gradnic/control/store"
	"gradnic/dataplane"
	"gradnic/wire/native"
)

// A tagged job has a key for each worker, which who installs it is told, whenever, and nobody else.
func TestTaggedJobHandsOutKeys(t *testing.T) {
	r := newRig(t)
	tagged := func() *apiv1.JobSpec { return nativeSpec("j", &apiv1.NativeSpec{Tagged: true}) }
	first := r.install(t, tagged())
	keys := first.GetKeys()
	if len(keys) != 3 || len(slices.Compact(slices.Sorted(slices.Values(keys)))) != 3 {
		t.Fatalf("keys %v", keys)
	}
	var k native.Key
	if err := k.UnmarshalText([]byte(keys[0])); err != nil || k == (native.Key{}) {
		t.Errorf("key %q: %v", keys[0], err)
	}
	if s := first.GetJob().GetSpec(); !s.GetNative().GetTagged() || s.GetElements() != 354 { // 1440 bytes less the tag's 24
		t.Errorf("%v", s)
	}
	again := r.install(t, tagged())
	if again.GetCreated() || !slices.Equal(again.GetKeys(), keys) {
		t.Errorf("the same again: created %t, keys %v", again.GetCreated(), again.GetKeys())
	}
	job, err := r.client.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "j"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if strings.Contains(string(text), key) {
			t.Errorf("a key is shown: %s", text)
		}
	}
	plain := nativeSpec("j", nil)
	plain.Elements = 354
	if _, err := r.client.InstallJob(t.Context(), &apiv1.InstallJobRequest{Spec: plain}); status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), "tagged true, not false") {
		t.Errorf("without tags: %v", err)
	}
	if got := r.install(t, nativeSpec("plain", nil)); len(got.GetKeys()) != 0 || got.GetJob().GetSpec().GetNative().GetTagged() {
		t.Errorf("not asked for: %v", got)
	}
	for name, n := range map[string]*apiv1.NativeSpec{
		"multicast": {Tagged: true, Multicast: "239.1.1.1"},
	} {
		if _, err := r.client.InstallJob(t.Context(), &apiv1.InstallJobRequest{Spec: nativeSpec("x", n)}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("with %s: %v", name, err)
		}
	}
}

// A NIC that starts again has the keys that it had.
func TestKeysSurviveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	var keys []string
	for life := range 2 {
		s, err := store.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		nic, err := dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP}, dataplane.NewMemPort("mem0"))
		if err != nil {
			t.Fatal(err)
		}
		server, err := New(Options{NIC: nic, Store: s})
		if err != nil {
			t.Fatal(err)
		}
		jobs := server.Jobs()
		if life == 0 {
			spec := dataplane.JobSpec{Name: "j", Protocol: dataplane.ProtocolNative, Workers: 2, Native: &dataplane.NativeSpec{Keys: wantedKeys(2)}}
			if _, err := jobs.Install(spec, OriginAPI); err != nil {
				t.Fatal(err)
			}
			keys = jobs.keys("j")
		}
		if lost := jobs.Lost(); len(lost) != 0 {
			t.Errorf("lost %v", lost)
		}
		if got := jobs.keys("j"); len(got) != 2 || !slices.Equal(got, keys) {
			t.Errorf("life %d: keys %v, were %v", life, got, keys)
		}
		status, err := nic.Job("j")
		if err != nil {
			t.Fatal(err)
		}
		for r, k := range status.Native.Keys {
			if text, _ := k.MarshalText(); string(text) != keys[r] {
				t.Errorf("life %d: the data plane has another key of rank %d", life, r)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("0 older\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	keys := []string{"000102030405060708090a0b0c0d0e0f", "101112131415161718191a1b1c1d1e1f"}
	if err := WriteKeys(path, keys); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for rank, want := range keys {
		k, err := ReadKey(path, rank)
		if text, _ := k.MarshalText(); err != nil || string(text) != want {
			t.Errorf("rank %d: %s, %v", rank, text, err)
		}
	}
	if _, err := ReadKey(path, 2); err == nil || !strings.Contains(err.Error(), "none of rank 2") {
		t.Errorf("no such rank: %v", err)
	}
	for text, says := range map[string]string{"x y\n": ":1: write RANK KEY", "0 00\n": ":1: key of 2 digits"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadKey(path, 0); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := WriteKeys(filepath.Join(path, "x"), keys); err == nil {
		t.Error("a file in a file was written")
	}
}
