package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What is judged how, and that whatever is missing comes with what mends it.
func TestJudgements(t *testing.T) {
	k := func(s string) kernel { v, _ := parseKernel(s); return v }
	good := netdev{name: "eth1", driver: "ice", up: true, carrier: true, mtu: 1500, known: true, features: xdpBasic | xdpRedirect | xdpRxSG, channels: 2, most: 8, on: map[string]bool{"rx-gro": true}}
	with := func(f func(*netdev)) *netdev { d := good; f(&d); return &d }
	const raw = 1 << unix.CAP_NET_RAW
	const all = raw | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_BPF
	meminfo := "MemAvailable:    8192 kB\nHugePages_Free:        3\nHugepagesize:       2048 kB\n"
	for name, c := range map[string]struct {
		check  Check
		status Status
		says   string
	}{
		"kernel new":         {judgeKernel(k("6.12.3-amd64")), OK, "6.12.3"},
		"kernel before sg":   {judgeKernel(k("6.1.0-18-amd64")), Advice, "6.6"},
		"kernel old":         {judgeKernel(k("5.4.0")), Missing, "5.9"},
		"kernel of 5":        {judgeKernel(k("5.10")), Advice, "6.6"},
		"kernel odd":         {judgeKernel(k("x")), Advice, "cannot be read"},
		"btf":                {judgeBTF(true), OK, ""},
		"no btf":             {judgeBTF(false), Advice, "CONFIG_DEBUG_INFO_BTF"},
		"no af_xdp":          {judgeSocket(-1, unix.EAFNOSUPPORT), Missing, "CONFIG_XDP_SOCKETS"},
		"no right":           {judgeSocket(-1, unix.EPERM), Missing, "setcap"},
		"other error":        {judgeSocket(-1, unix.EMFILE), Missing, "too many open files"},
		"caps":               {judgeCaps(all, nil), OK, ""},
		"admin is bpf":       {judgeCaps(all&^(1<<unix.CAP_BPF)|1<<unix.CAP_SYS_ADMIN, nil), OK, ""},
		"no caps":            {judgeCaps(raw, nil), Missing, "no CAP_NET_ADMIN, CAP_BPF"},
		"caps unknown":       {judgeCaps(0, errors.New("capget: no")), Missing, "capget"},
		"lock any":           {memlock(true, 0, 1), OK, "CAP_IPC_LOCK"},
		"lock infinite":      {memlock(false, unix.RLIM_INFINITY, 1), OK, "not limited"},
		"lock enough":        {memlock(false, 8<<20, 8<<20), OK, "8 MiB"},
		"lock too little":    {memlock(false, 8<<20, 8<<20+1), Missing, "ulimit -l 8193"},
		"memory":             {judgeMemory(meminfo, 8<<20), OK, "8 MiB available"},
		"memory too little":  {judgeMemory(meminfo, 8<<20+1), Missing, "--frames"},
		"memory unknown":     {judgeMemory("", 1), Advice, "does not say"},
		"huge":               {judgeHugePages(&Options{HugePages: true}, meminfo, 6<<20), OK, "3 free of 2 MiB"},
		"huge too few":       {judgeHugePages(&Options{HugePages: true}, meminfo, 6<<20+1), Missing, "vm.nr_hugepages=4"},
		"huge not wanted":    {judgeHugePages(&Options{}, meminfo, 1<<40), OK, ""},
		"huge none":          {judgeHugePages(&Options{HugePages: true}, "", 1), Missing, "asked for"},
		"jit off":            {judgeJIT("0"), Advice, "bpf_jit_enable=1"},
		"jit":                {judgeJIT("1"), OK, ""},
		"cpus few":           {judgeCPUs(2, 3), Missing, "--lanes 2"},
		"cpus all":           {judgeCPUs(2, 2), Advice, "spin"},
		"cpus":               {judgeCPUs(3, 2), OK, ""},
		"busy poll":          {judgeBusyPoll("50", "0"), Advice, "net.core.busy_poll=0"},
		"no busy poll":       {judgeBusyPoll("0", "0"), OK, ""},
		"link":               {judgeLink(&good), OK, "driver ice, up"},
		"link down":          {judgeLink(with(func(d *netdev) { d.up = false })), Missing, "ip link set eth1 up"},
		"no carrier":         {judgeLink(with(func(d *netdev) { d.carrier = false })), Missing, "cable"},
		"bridged":            {judgeLink(with(func(d *netdev) { d.master = "br0" })), Advice, "nomaster"},
		"native":             {judgeXDP(&good), OK, "native"},
		"generic":            {judgeXDP(with(func(d *netdev) { d.features = 0 })), Advice, "generic only"},
		"no redirect":        {judgeXDP(with(func(d *netdev) { d.features = xdpBasic })), Advice, "--mode generic"},
		"xdp unknown":        {judgeXDP(with(func(d *netdev) { d.known = false })), Advice, "6.3"},
		"foreign program":    {judgeProgram(with(func(d *netdev) { d.program, d.progName, d.mode = 7, "theirs", "native" })), Missing, "ip link set dev eth1 xdpdrv off"},
		"own program":        {judgeProgram(with(func(d *netdev) { d.program, d.progName = 7, "steer_frags" })), OK, "a gradnic runs"},
		"no program":         {judgeProgram(&good), OK, "none"},
		"zero-copy":          {judgeZeroCopy(with(func(d *netdev) { d.features |= xdpZeroCopy; d.segments = 8 })), OK, "8 segments"},
		"queues":             {judgeQueues(&good, 2), OK, ""},
		"queues few":         {judgeQueues(&good, 3), Missing, "ethtool -L eth1 combined 3"},
		"queues of veth":     {judgeQueues(with(func(d *netdev) { d.kind = "veth" }), 3), Missing, "ethtool -L eth1 rx 3"},
		"queues never":       {judgeQueues(&good, 9), Missing, "--lanes 2"},
		"queues uneven":      {judgeQueues(with(func(d *netdev) { d.channels = 5 }), 2), Advice, "combined 4"},
		"queues not told":    {judgeQueues(with(func(d *netdev) { d.channels, d.most = 0, 0 }), 1), OK, ""},
		"mtu":                {judgeMTU(&good, k("6.1"), 2048), OK, ""},
		"mtu at the edge":    {judgeMTU(with(func(d *netdev) { d.mtu = 1778 }), k("6.1"), 2048), Advice, "tagged"},
		"mtu large, old":     {judgeMTU(with(func(d *netdev) { d.mtu = 1779 }), k("6.1"), 2048), Missing, "--chunk 4096, or: ip link set eth1 mtu 1778"},
		"mtu large":          {judgeMTU(with(func(d *netdev) { d.mtu = 9000 }), k("6.6"), 2048), Advice, "several chunks"},
		"mtu large, no frag": {judgeMTU(with(func(d *netdev) { d.mtu = 9000; d.features = xdpBasic }), k("6.6"), 4096), Missing, "mtu 3826"},
		"ipv6":               {judgeIPv6(with(func(d *netdev) { d.ipv6 = true })), Advice, "net.ipv6.conf.eth1.disable_ipv6=1"},
		"defer":              {judgeDefer(with(func(d *netdev) { d.deferIRQs, d.groTimeout = "2", "0" })), Advice, "napi_defer_hard_irqs"},
		"defer with timer":   {judgeDefer(with(func(d *netdev) { d.deferIRQs, d.groTimeout = "2", "20000" })), OK, ""},
		"gro off":            {judgeGRO(with(func(d *netdev) { d.on = nil })), Advice, "ethtool -K eth1 gro on"},
	} {
		text := strings.Join([]string{c.check.Found, c.check.Why, c.check.Mend}, "\n")
		if c.check.Status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %+v, want %s with %q", name, c.check, c.status, c.says)
		}
		if c.status != OK && c.check.Why == "" && c.check.Found == "" {
			t.Errorf("%s: says nothing", name)
		}
	}
}

// What the frames take grows with the queues, not the ports, as the NIC deals them out.
func TestMemory(t *testing.T) {
	for _, c := range []struct {
		lanes, frames int
		queues        []int
		chunks        uint64
	}{
		{1, 2048, []int{1}, 2048 + 192},
		{1, 2048, []int{0}, 2048 + 192}, // not told: one
		{1, 2048, []int{4}, 4*2048 + 192},
		{1, 128, []int{4, 1}, 5*128 + 256},
		{2, 2048, []int{2, 2}, 2 * (2*2048 + 2048 + 256)},
		{2, 2048, []int{3, 2}, 2 * (3*2048 + 2048 + 256)},
	} {
		o := Options{Lanes: c.lanes, Frames: c.frames, ChunkSize: 2048}
		if got := o.memory(c.queues); got != c.chunks*2048 {
			t.Errorf("%+v: %d chunks", c, got/2048)
		}
	}
}

func TestReport(t *testing.T) {
	r, err := Examine(Options{Interfaces: []string{"no-such-if"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.OK || !strings.Contains(r.Text(), "missing  no-such-if interface") || !strings.Contains(r.Text(), " missing") {
		t.Errorf("%s", r.Text())
	}
	for _, o := range []Options{{Lanes: -1}, {ChunkSize: 1000}, {Frames: -1}} {
		if _, err := Examine(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	// What is not named cannot be missing.
	if r, err = Examine(Options{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks {
		if c.Subject != Machine && c.Status == Missing {
			t.Errorf("%+v", c)
		}
	}
}

// A bundle is what was put in, without what is to be hidden, and with counters of 64 bits as they are.
func TestBundle(t *testing.T) {
	f, err := JSONFile("show/jobs.json", map[string]any{
		"jobs": []any{map[string]any{"name": "train", "tenant": "acme", "results": uint64(1<<63 + 1)}}, "tenant": "",
	})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := WriteBundle(&b, now, []File{f, Facts([]string{"lo"})}); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || h.Mode != 0o600 {
			t.Fatal(err, h.Mode)
		}
		got[h.Name] = string(text)
	}
	jobs := got["gradnic-20260102-030405/show/jobs.json"]
	if strings.Contains(jobs, "acme") || !strings.Contains(jobs, `"(hidden)"`) || !strings.Contains(jobs, "9223372036854775809") || !json.Valid([]byte(jobs)) {
		t.Errorf("%s", jobs)
	}
	if facts := got["gradnic-20260102-030405/facts.txt"]; !strings.Contains(facts, "== interface lo") || !strings.Contains(facts, "kernel.osrelease = ") {
		t.Errorf("%s", facts)
	}
}
