package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gradnic/control"
	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// result is what one command line left behind.
type result struct {
	code     int
	out, err string
}

func gradnic(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(stdin), &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

// want checks the exit status, and that an error is one line and nothing else is printed.
func (r result) want(t *testing.T, code int, says string) result {
	t.Helper()
	text := r.out
	if code != exitOK {
		text = r.err
		if r.out != "" || strings.Count(r.err, "\n") != 1 || !strings.HasPrefix(r.err, "gradnic") {
			t.Errorf("an error is one line on standard error: got %q and %q", r.out, r.err)
		}
	} else if r.err != "" {
		t.Errorf("standard error: %q", r.err)
	}
	if r.code != code || !strings.Contains(text, says) {
		t.Errorf("status %d, %q, want %d with %q", r.code, text, code, says)
	}
	return r
}

func TestUsage(t *testing.T) {
	for line, says := range map[string]string{
		"":                                                   "a command is missing",
		"shew":                                               "did you mean show?",
		"bench ring --rounds -1":                             "-1 rounds",
		"bench ring --rate-mbit 0":                           "--rate-mbit and --rounds above 0",
		"bench ring --nodes 1":                               "1 nodes: from 2 to 16",
		"ring --nodes 10.0.0.1,10.0.0.1":                     "nodes 0 and 1 have the same address",
		"ring demo --codec topk":                             "a ring has none, bfp16",
		"version extra":                                      "see gradnic version --help",
		"--bad":                                              "unknown flag: --bad",
		"show":                                               "gradnic show: a command is missing: one of ",
		"show jab":                                           "did you mean job",
		"show job":                                           "accepts 1 arg",
		"show jobs x":                                        "see gradnic show jobs --help",
		"show jobs --api 1.2.3.4:5":                          "tcp://HOST:PORT",
		"install job":                                        "name is missing",
		"install job a":                                      "--workers is missing",
		"install job a --workers many":                       "many",
		"install job a --workers 1 -f x":                     "exclude each other",
		"install job a --workers 1 --member 0=x":             "RANK=MAC,IP",
		"install worker a":                                   "accepts 2 arg",
		"install worker a b":                                 "RANK=MAC,IP",
		"remove job":                                         "accepts 1 arg",
		"set impair p":                                       "no impairment is given",
		"set impair p --ingress-loss 101":                    "a percentage from 0 to 100",
		"set impair p --ingress-loss NaN":                    "a percentage from 0 to 100",
		"set impair p --drop-ingress 0":                      "counted from 1",
		"clear impair":                                       "name one port, or --all",
		"clear impair p --all":                               "name one port, or --all",
		"run":                                                "--port is missing",
		"run --port x":                                       "--ip is missing",
		"run --port x --ip 1.2.3":                            "--ip",
		"run --port x --ip 1.2.3.4 --log x":                  "legal are text and json",
		"run --port x --ip 127.0.0.1":                        "127.0.0.1: it is a loopback address",
		"run --port x --ip 224.0.0.1":                        "multicast",
		"run --port x --ip 255.255.255.255":                  "broadcast",
		"run --port x --ip 10.0.0.9 --lanes 0":               "--lanes 0: legal are 1 to 64",
		"run --port x --ip 10.0.0.9 --lanes 4000000":         "4000000 lanes",
		"run --port x --ip 10.0.0.9 --cpus 1,2":              "2 CPUs for 1 lanes",
		"run --port x --ip 10.0.0.9 --cpus=-3":               "--cpus -3",
		"run --port x --ip 10.0.0.9 --spin -5s":              "--spin -5s",
		"run --port x --ip 10.0.0.9 --frames 1000":           "powers of two",
		"run --port x --ip 10.0.0.9 --frames 0":              "powers of two",
		"run --port x --ip 10.0.0.9 --chunk 1024":            "legal are 2048 and 4096",
		"run --port x --ip 10.0.0.9 --switchml-slots 0":      "legal are 1 to",
		"run --port x --ip 10.0.0.9 --stop-timeout 0s":       "--stop-timeout 0s",
		"run --port x --ip 10.0.0.9 --mac ff:ff:ff:ff:ff:ff": "unicast MAC",
		"run --port x --port x --ip 10.0.0.9":                "both named x",
		"run --mode fast":                                    "legal are auto, native, generic",
		"run --wait x":                                       "legal are adaptive, busy, interrupt",
	} {
		t.Run(line, func(t *testing.T) {
			gradnic(t, "", strings.Fields(line)...).want(t, exitUsage, says)
		})
	}
}

func TestVersion(t *testing.T) {
	r := gradnic(t, "", "version", "-j").want(t, exitOK, `"go":"go`)
	var v versionInfo
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || v.Platform == "" {
		t.Errorf("%v: %q", err, r.out)
	}
	gradnic(t, "", "version").want(t, exitOK, "gradnic ")
}

func TestNobodyAnswers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	r := gradnic(t, "", "show", "jobs", "--api", socket).want(t, exitFailed, "start one with gradnic run")
	if !strings.Contains(r.err, socket) {
		t.Errorf("the line does not say where: %q", r.err)
	}
}

// serve runs a NIC with two mem ports and its API, without root, and returns the API's address.
func serve(t *testing.T) (socket string) {
	t.Helper()
	nic, err := dataplane.New(dataplane.Config{MAC: inet.MAC{2, 0x67, 10, 50, 0, 254}, IP: inet.Addr{10, 50, 0, 254}},
		dataplane.NewMemPort("mem0"), dataplane.NewMemPort("mem1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := nic.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	server, err := control.New(control.Options{NIC: nic})
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(t.TempDir(), "api.sock")
	l, err := control.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := nic.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return socket
}

func TestInstallShowRemove(t *testing.T) {
	api := "--api=" + serve(t)
	member := []string{"--member", "0=02:00:00:00:01:00,10.50.0.1", "--member", "1=02:00:00:00:01:01,10.50.0.2,mem1"}
	install := slices.Concat([]string{"install", "job", "train", api, "--workers", "3", "--elements", "64"}, member)
	gradnic(t, "", install...).want(t, exitOK, "job train installed\n")
	gradnic(t, "", install...).want(t, exitOK, "job train unchanged\n")
	gradnic(t, "", append(install, "--slots", "9")...).want(t, exitFailed, "slots 512, not 9")
	gradnic(t, "", "install", "worker", "train", "2=02:00:00:00:01:02,10.50.0.254", api).want(t, exitFailed, "NIC's own address")
	gradnic(t, "", "install", "worker", "train", "2=02:00:00:00:01:02,10.50.0.3", api).want(t, exitOK, "worker 2 of job train installed\n")

	gradnic(t, "", "show", "jobs", api).want(t, exitOK, "train  -       switchml  3        0       64        512")
	r := gradnic(t, "", "show", "job", "train", api).want(t, exitOK, "registered but never sent: rank 0-2")
	for _, line := range []string{
		"1     02:00:00:00:01:01  10.50.0.2  mem1  0   0            0           0   0       0             never      ",
		"2     02:00:00:00:01:02  10.50.0.3  -     0   0            0           0   0       0             never      ",
	} {
		if !strings.Contains(r.out, line) {
			t.Errorf("no line %q in:\n%s", line, r.out)
		}
	}
	gradnic(t, "", "show", "slots", "train", api).want(t, exitOK, "train  512    64        1024")
	gradnic(t, "", "show", "groups", api).want(t, exitOK, "train  3/3      1     02:00:00:00:01:01  10.50.0.2  mem1")
	gradnic(t, "", "show", "workers", api).want(t, exitOK, "train  2     02:00:00:00:01:02")
	gradnic(t, "", "show", "nic", api).want(t, exitOK, "02:67:0a:32:00:fe")
	gradnic(t, "", "show", "lanes", api).want(t, exitOK, "LANE")
	gradnic(t, "", "show", "drops", api).want(t, exitOK, "REASON")
	gradnic(t, "", "show", "counters", api).want(t, exitOK, "the accounts add up")
	gradnic(t, "", "show", "job", "nobody", api).want(t, exitFailed, "job nobody")
	gradnic(t, "", "show", "slots", "nobody", api).want(t, exitFailed, "nobody")

	gradnic(t, "", "remove", "job", "train", api).want(t, exitOK, "job train removed\n")
	gradnic(t, "", "remove", "job", "train", api).want(t, exitFailed, "no such job")
}

// With -j and -p each view is one JSON document with its key, and nothing else is on standard output.
func TestShowJSON(t *testing.T) {
	api := "--api=" + serve(t)
	gradnic(t, "", "install", "job", "train", api, "--workers", "2").want(t, exitOK, "")
	for _, v := range views {
		args := []string{"show", v.name, api}
		if v.args == "NAME" {
			args = append(args, map[string]string{"job": "train", "port": "mem1"}[v.name])
		}
		for _, flag := range []string{"-j", "-p", "-jp"} {
			r := gradnic(t, "", append(slices.Clone(args), flag)...).want(t, exitOK, "{")
			d := json.NewDecoder(strings.NewReader(r.out))
			var document map[string]any
			if err := d.Decode(&document); err != nil || d.More() {
				t.Errorf("%s %s: %v, more: %v", v.name, flag, err, d.More())
			}
			if _, ok := document[v.name]; !ok {
				t.Errorf("%s %s: keys %v", v.name, flag, document)
			}
			if lines := strings.Count(r.out, "\n"); (lines == 1) != (flag == "-j") {
				t.Errorf("%s %s: %d lines", v.name, flag, lines)
			}
		}
	}
}

func TestInstallFromFile(t *testing.T) {
	api := "--api=" + serve(t)
	text := "name: train\nworkers: 2\nelements: 64\nmembers:\n  - {rank: 0, mac: 02:00:00:00:01:00, ip: 10.50.0.1}\n"
	file := filepath.Join(t.TempDir(), "train.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	gradnic(t, "", "install", "job", "-f", file, api).want(t, exitOK, "job train installed\n")
	gradnic(t, text, "install", "job", "-f", "-", api).want(t, exitOK, "job train unchanged\n")
	gradnic(t, "", "install", "job", "other", "-f", file, api).want(t, exitUsage, `"train"`)
	gradnic(t, text+"slot: 3\n", "install", "job", "-f", "-", api).want(t, exitFailed, `unknown field "slot"`)
	gradnic(t, "workers: 2\nprotocol: accl\nname: b\n", "install", "job", "-f", "-", api).want(t, exitFailed, "supported are switchml and native")
	gradnic(t, "workers: 2\n", "install", "job", "named", "-f", "-", api).want(t, exitOK, "job named installed\n")
	gradnic(t, "", "install", "job", "-f", file+".none", api).want(t, exitFailed, "no such file")
}

func TestImpair(t *testing.T) {
	api := "--api=" + serve(t)
	gradnic(t, "", "set", "impair", "mem0", "--ingress-loss", "1%", "--egress-loss", "10", "--drop-egress", "3,17", "--seed", "7", api).want(t, exitOK, "port mem0 impaired\n")
	gradnic(t, "", "show", "ports", api).want(t, exitOK, "ingress-loss 1% egress-loss 10% drop-egress 3,17\n")
	r := gradnic(t, "", "show", "ports", "-j", api)
	var document struct {
		Ports []struct {
			Name       string
			Impairment *dataplane.Impairment
		}
	}
	if err := json.Unmarshal([]byte(r.out), &document); err != nil {
		t.Fatal(err)
	}
	i := document.Ports[0].Impairment
	if i == nil || i.IngressLoss != 0.01 || i.EgressLoss != 0.1 || !slices.Equal(i.DropEgress, []uint64{3, 17}) || i.Seed != 7 || document.Ports[1].Impairment != nil {
		t.Errorf("impairment %+v of %s", i, r.out)
	}
	gradnic(t, "", "set", "impair", "eth9", "--duplicate", "1", api).want(t, exitFailed, "mem0 mem1")
	gradnic(t, "", "clear", "impair", "mem0", api).want(t, exitOK, "port mem0 no longer impaired\n")
	if r := gradnic(t, "", "show", "ports", api); strings.Contains(r.out, "loss") {
		t.Errorf("still impaired:\n%s", r.out)
	}
	gradnic(t, "", "clear", "impair", "--all", api).want(t, exitOK, "all ports no longer impaired\n")
}
