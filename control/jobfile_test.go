package control

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "gradnic/control/api/v1"
)

func TestReadJobFile(t *testing.T) {
	f, err := ReadJobFile("train.yaml", strings.NewReader(`
# a comment
name: train
tenant: team-a
workers: 2
elements: 64
slots: 128
members:
  - {rank: 0, mac: 02:00:00:00:01:00, ip: 10.50.0.1, port: eth1}
  - rank: 1
    mac: "02:00:00:00:01:01"
    ip: 10.50.0.2
`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Proto()
	if err != nil {
		t.Fatal(err)
	}
	want := &apiv1.JobSpec{Name: "train", Tenant: "team-a", Workers: 2, Elements: 64, Slots: 128, Members: []*apiv1.WorkerSpec{
		{Rank: 0, Mac: "02:00:00:00:01:00", Ipv4: "10.50.0.1", Port: "eth1"},
		{Rank: 1, Mac: "02:00:00:00:01:01", Ipv4: "10.50.0.2"},
	}}
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestReadJobFileIsStrict(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"unknown key":       {"name: a\nworkers: 2\nslot: 4\n", "[3:1]"},
		"key given twice":   {"name: a\nname: b\n", "name"},
		"unknown in member": {"name: a\nmembers:\n  - rank: 0\n    address: x\n", "address"},
		"not a number":      {"name: a\nworkers: many\n", "[2:"},
		"negative":          {"name: a\nworkers: -1\n", "[2:"},
		"too large":         {"name: a\nworkers: 4294967296\n", "[2:"},
		"no truth":          {"name: a\nin_kernel: perhaps\n", "[2:"},
		"a list":            {"- a\n- b\n", "[1:"},
		"empty":             {"# nothing\n", "no job"},
		"not YAML":          {"name: [\n", "job.yaml"},
		"huge":              {strings.Repeat("#", maxJobFile+1), "at most"},
	} {
		_, err := ReadJobFile("job.yaml", strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "job.yaml") {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func TestParseMember(t *testing.T) {
	m, err := ParseMember("3=02:00:00:00:01:03,10.50.0.4,eth1")
	if want := (MemberFile{Rank: 3, MAC: "02:00:00:00:01:03", IP: "10.50.0.4", Port: "eth1"}); err != nil || m != want {
		t.Errorf("%+v, %v", m, err)
	}
	for _, s := range []string{"", "3", "=a,b", "x=a,b", "-1=a,b", "3=a", "3=a,b,c,d", "3x=a,b", "99999999999=a,b"} {
		if m, err := ParseMember(s); err == nil {
			t.Errorf("%q is %+v", s, m)
		}
	}
}
