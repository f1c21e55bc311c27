package netlab_test

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
)

// TestMain lets the test binary play a process that opens a lab and dies without closing it.
func TestMain(m *testing.M) {
	if os.Getenv("NETLAB_ABANDON") != "" {
		abandon()
	}
	os.Exit(m.Run())
}

// abandon makes a lab with a process inside, prints the lab's name, and waits to be killed.
func abandon() {
	fail := func(err error) {
		if err != nil {
			println(err.Error())
			os.Exit(1)
		}
	}
	lab, err := netlab.New("netlabs")
	fail(err)
	a, err := lab.Namespace("a")
	fail(err)
	b, err := lab.Namespace("b")
	fail(err)
	fail(lab.Veth(netlab.End{NS: a, Name: "va"}, netlab.End{NS: b, Name: "vb"}))
	inside := exec.Command("sleep", "1000")
	fail(a.Start(inside))
	os.Stdout.WriteString(lab.Name() + "\n")
	select {}
}

func TestSweepAfterKill(t *testing.T) {
	netlabtest.NeedRoot(t)
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), "NETLAB_ABANDON=1")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	stem, err := bufio.NewReader(out).ReadString('\n')
	stem = strings.TrimSpace(stem)
	if err != nil || stem == "" {
		child.Process.Kill()
		t.Fatalf("child said %q, %v", stem, err)
	}
	// Its owner lives: a new lab of the same prefix must leave it alone.
	lab, err := netlab.New("netlabs")
	if err != nil {
		t.Fatal(err)
	}
	defer lab.Close()
	if got := namespacesOf(t, stem); len(got) != 2 {
		t.Errorf("a living owner's namespaces after New: %v, want 2", got)
	}
	child.Process.Kill()
	child.Wait()
	if got := namespacesOf(t, stem); len(got) != 2 {
		t.Errorf("after kill -9: %v, want 2 left over", got)
	}
	if names, err := netlab.Leftovers("netlabs"); err != nil || len(names) != 2 {
		t.Errorf("Leftovers: %v, %v", names, err)
	}
	if names, err := netlab.Leftovers("netlab"); err != nil || len(names) != 0 {
		t.Errorf("Leftovers of another prefix: %v, %v", names, err)
	}
	next, err := netlab.New("netlabs")
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if got := namespacesOf(t, stem); len(got) != 0 {
		t.Errorf("after the next New: %v", got)
	}
	pids, _ := exec.Command("pgrep", "-f", "^sleep 1000$").Output()
	for _, pid := range strings.Fields(string(pids)) {
		if env, _ := os.ReadFile("/proc/" + pid + "/environ"); slices.Contains(strings.Split(string(env), "\x00"), "NETLAB_ABANDON=1") {
			t.Errorf("process %s inside survived the sweep", pid)
		}
	}
}

// TestSweepLeavesStrangersAlone: a namespace of someone else, whatever its name, is not ours to remove.
func TestSweepLeavesStrangersAlone(t *testing.T) {
	netlabtest.NeedRoot(t)
	const name = "netlabx-99999999-mine"
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Fatalf("ip netns add: %v: %s", err, out)
	}
	defer exec.Command("ip", "netns", "del", name).Run()
	if _, err := netlab.Sweep("netlabx"); err != nil {
		t.Fatal(err)
	}
	if got := namespacesOf(t, name); len(got) != 1 {
		t.Errorf("after the sweep: %v, want %s", got, name)
	}
}
