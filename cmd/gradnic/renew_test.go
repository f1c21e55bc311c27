package main

import (
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"gradnic/control"
	apiv1 "gradnic/control/api/v1"
	"gradnic/internal/logtest"
)

// SIGHUP reads the certificates of the TLS door again: a pair that does not fit keeps the old one, a right one and another CA
// are those of new connections, and calls under way go on.
func TestCertificatesAreRenewedOnSIGHUP(t *testing.T) {
	for _, how := range []string{"file", "flags"} {
		t.Run(how, func(t *testing.T) {
			dir, fresh := t.TempDir(), t.TempDir()
			certificates(t, dir, "nic", "admin")
			certificates(t, fresh, "nic", "admin")
			socket := filepath.Join(dir, "api.sock")
			var out, log *logtest.Lines
			if how == "file" {
				file := filepath.Join(dir, "gradnic.yaml")
				writeFile(t, file, "port: mem:m0\nip: 10.50.0.254\nframes: 128\napi: "+socket+"\n"+
					"tls: 127.0.0.1:0\ntls-cert: "+dir+"/nic.pem\ntls-key: "+dir+"/nic.key\ntls-ca: "+dir+"/ca.pem\n")
				out, log = runFile(t, file)
			} else {
				out, log = runArgs(t, "--port", "mem:m0", "--ip", "10.50.0.254", "--frames", "128", "--api", socket,
					"--tls", "127.0.0.1:0", "--tls-cert", dir+"/nic.pem", "--tls-key", dir+"/nic.key", "--tls-ca", dir+"/ca.pem")
			}
			address := regexp.MustCompile(` tls=tcp:(\S+)`).FindStringSubmatch(out.String())
			if address == nil {
				t.Fatal(out.String())
			}
			hup := func(says string) {
				t.Helper()
				if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
					t.Fatal(err)
				}
				log.Wait(t, says)
			}
			move := func(from, to string) {
				t.Helper()
				text, err := os.ReadFile(filepath.Join(fresh, from))
				if err != nil {
					t.Fatal(err)
				}
				writeFile(t, filepath.Join(dir, to), string(text))
			}
			// What clients of the old and of the new certificates have, whatever the NIC's files are.
			was, is := t.TempDir(), fresh
			for _, name := range []string{"ca.pem", "admin.pem", "admin.key"} {
				text, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				writeFile(t, filepath.Join(was, name), string(text))
			}
			as := func(dir string, args ...string) result {
				t.Helper()
				return gradnic(t, "", append(args, "--api", "tcp://"+address[1], "--tls-cert", dir+"/admin.pem", "--tls-key", dir+"/admin.key", "--tls-ca", dir+"/ca.pem")...)
			}
			c, err := control.DialTLS("tcp://"+address[1], control.TLSFiles{Cert: was + "/admin.pem", Key: was + "/admin.key", CA: was + "/ca.pem"})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			watch, err := c.WatchJobs(t.Context(), &apiv1.WatchJobsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			as(was, "install", "job", "old", "--workers", "2", "--elements", "64").want(t, exitOK, "installed")
			if m, err := watch.Recv(); err != nil || m.GetName() != "old" {
				t.Fatalf("watched %v, %v", m, err)
			}

			move("nic.pem", "nic.pem") // without its key
			move("ca.pem", "ca.pem")
			hup(`configuration not read: all stays as it was" changed=0 err="TLS: certificate ` + dir + `/nic.pem with key `)
			as(was, "show", "jobs").want(t, exitOK, "old")
			as(is, "show", "jobs").want(t, exitFailed, "refuse each other's certificates")

			move("nic.key", "nic.key")
			hup("changed=2 need_restart=0")
			log.Wait(t, `msg="configuration changed" key=tls-cert was="CN=nic, serial 2, until 20`)
			log.Wait(t, `key=tls-ca was=`+dir+`/ca.pem is="`+dir+`/ca.pem as it is now"`)
			for deadline := time.Now().Add(20 * time.Second); as(is, "show", "jobs").code != exitOK; { // the log is a moment before
				if time.Now().After(deadline) {
					t.Fatalf("the new certificates are not shown:\n%s", log)
				}
			}
			as(was, "show", "jobs").want(t, exitFailed, "refuse each other's certificates")
			as(is, "install", "job", "new", "--workers", "2", "--elements", "64").want(t, exitOK, "installed")
			if m, err := watch.Recv(); err != nil || m.GetName() != "new" {
				t.Errorf("the call that was under way saw %v, %v", m, err)
			}
			hup("changed=0 need_restart=0") // they are the same now
		})
	}
}
