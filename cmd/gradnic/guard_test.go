package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gradnic/control"
)

// certificates writes a CA and, signed by it, NAME.pem and NAME.key for each name, as
// docs/operate.md does with openssl. The unit of admin is the administrators'.
func certificates(t *testing.T, dir string, names ...string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(file, kind string, der []byte) {
		must(os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	must(err)
	write("ca.pem", "CERTIFICATE", der)
	for i, name := range names {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		c := &x509.Certificate{SerialNumber: big.NewInt(int64(i + 2)), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
		if name == "admin" {
			c.Subject.OrganizationalUnit = []string{control.AdminUnit}
		}
		der, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, caKey)
		must(err)
		write(name+".pem", "CERTIFICATE", der)
		private, err := x509.MarshalPKCS8PrivateKey(key)
		must(err)
		write(name+".key", "PRIVATE KEY", private)
	}
}

// A NIC with certificates, quotas, a card and metrics, from one file, as tenants and
// administrators use it; and quotas that change on SIGHUP.
func TestGuardedNIC(t *testing.T) {
	dir := t.TempDir()
	certificates(t, dir, "nic", "alice", "bob", "admin")
	file, socket := filepath.Join(dir, "gradnic.yaml"), filepath.Join(dir, "api.sock")
	text := "port: mem:m0\nip: 10.50.0.254\nframes: 128\napi: " + socket + "\nmetrics: 127.0.0.1:0\n" +
		"tls: 127.0.0.1:0\ntls-cert: " + dir + "/nic.pem\ntls-key: " + dir + "/nic.key\ntls-ca: " + dir + "/ca.pem\n" +
		"card: tofino-switchml-64\nquota:\n  - alice=slots:"
	writeFile(t, file, text+"100\n")
	gradnic(t, "", "run", "-c", file, "--check").want(t, exitOK, "right")
	gradnic(t, "", "run", "-c", file, "--check", "--tls-key", dir+"/alice.key").want(t, exitFailed, "private key")
	gradnic(t, "", "run", "-c", file, "--check", "--quota", "x").want(t, exitUsage, "TENANT=")
	gradnic(t, "", "run", "-c", file, "--check", "--card", "x").want(t, exitFailed, "tofino-switchml")
	gradnic(t, "", "run", "-c", file, "--check", "--api", "tcp://127.0.0.1:0").want(t, exitFailed, "asks for certificates")

	out, log := runFile(t, file)
	address := regexp.MustCompile(` tls=tcp:(\S+)`).FindStringSubmatch(out.String())
	if address == nil || !strings.Contains(out.String(), " metrics=tcp:127.0.0.1:") {
		t.Fatal(out.String())
	}
	as := func(name string, args ...string) result {
		t.Helper()
		return gradnic(t, "", append(args, "--api", "tcp://"+address[1], "--tls-cert", dir+"/"+name+".pem", "--tls-key", dir+"/"+name+".key", "--tls-ca", dir+"/ca.pem")...)
	}
	as("alice", "install", "job", "big", "--workers", "2", "--elements", "64", "--slots", "101").want(t, exitFailed, "101 slots: tenant alice has 0 of 100: 100 would fit")
	as("alice", "install", "job", "wide", "--workers", "2", "--elements", "256", "--slots", "1").want(t, exitFailed, "card tofino-switchml-64: 256 elements: it takes 64")
	as("alice", "show", "card", "-j").want(t, exitOK, `"slots":{"value":8192,`)
	writeFile(t, file, text+"200\n")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	log.Wait(t, "changed=1 need_restart=0")
	deadline := time.Now().Add(10 * time.Second)
	for as("alice", "install", "job", "big", "--workers", "2", "--elements", "64", "--slots", "101").code != exitOK { // the log is a moment before
		if time.Now().After(deadline) {
			t.Fatalf("the new quota does not hold:\n%s", log.String())
		}
	}
	as("bob", "show", "job", "big").want(t, exitFailed, "no such job")
	as("bob", "remove", "job", "big").want(t, exitFailed, "no such job")
	as("bob", "show", "ports").want(t, exitFailed, "is for administrators")
	as("admin", "show", "job", "big").want(t, exitOK, "alice")
	as("nobody", "show", "jobs").want(t, exitUsage, "no such file")
	if r := as("admin", "capture", "--duration", "1ms"); r.code != exitOK || !strings.Contains(r.err, "capturing on m0") {
		t.Errorf("an administrator's capture: status %d, %q", r.code, r.err)
	}
	as("alice", "capture", "--count", "1").want(t, exitFailed, "is for administrators")
	as("alice", "trace", "--slot", "1").want(t, exitFailed, "is for administrators")
	other := t.TempDir()
	certificates(t, other, "alice")
	gradnic(t, "", "show", "jobs", "--api", "tcp://"+address[1], "--tls-cert", dir+"/alice.pem", "--tls-key", dir+"/alice.key", "--tls-ca", other+"/ca.pem").
		want(t, exitFailed, "refuse each other's certificates (authentication handshake failed: tls: failed to verify certificate")
	gradnic(t, "", "show", "jobs", "--api", "tcp://"+address[1], "--tls-cert", other+"/alice.pem", "--tls-key", other+"/alice.key", "--tls-ca", dir+"/ca.pem").
		want(t, exitFailed, "are to be signed by the CA that the NIC has as tls-ca")
	gradnic(t, "", "show", "jobs", "--api", "tcp://"+address[1]).want(t, exitUsage, "three files are needed")
	gradnic(t, "", "show", "job", "big", "--api", socket).want(t, exitOK, "alice")
	as("alice", "remove", "job", "big").want(t, exitOK, "removed")
}

func TestShowCard(t *testing.T) {
	gradnic(t, "", "show", "card", "tofino-switchml").want(t, exitOK, "up to 16 workers")
	gradnic(t, "", "show", "card", "tofino-switchml", "-j").want(t, exitOK, `"slots":{"value":8192,"source":"p4lang`)
	gradnic(t, "", "show", "card", "none").want(t, exitFailed, "there are ")
	gradnic(t, "", "show", "card", "--api", serve(t)).want(t, exitOK, "no card: run --card takes")
}
