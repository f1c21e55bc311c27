//go:build cgo

// What programs call. Nothing here enters Go in a process that has no Go threads.
#include "gradnic.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "_cgo_export.h"

static _Atomic int forked;

// Connections that a child must not hold: as long as one does, the NIC would think that its client is there.
#define TRACKED 64
static _Atomic int tracked[TRACKED]; // descriptor + 1

static void child(void)
{
	atomic_store(&forked, 1);
	for (int i = 0; i < TRACKED; i++) {
		int fd = atomic_exchange(&tracked[i], 0);
		if (fd > 0)
			close(fd - 1);
	}
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, child);
}

void gradnic_track(int fd)
{
	for (int i = 0; i < TRACKED; i++) {
		int none = 0;
		if (atomic_compare_exchange_strong(&tracked[i], &none, fd + 1))
			return;
	}
}

void gradnic_untrack(int fd)
{
	for (int i = 0; i < TRACKED; i++) {
		int this = fd + 1;
		atomic_compare_exchange_strong(&tracked[i], &this, 0);
	}
}

static int refuse(char *err, size_t errlen)
{
	if (!atomic_load(&forked))
		return 0;
	if (err && errlen)
		snprintf(err, errlen, "gradnic: this process was forked after the library was loaded: start it with spawn or exec instead");
	return GRADNIC_EFORK;
}

#define ENTER(err, errlen)                      \
	do {                                    \
		int r_ = refuse(err, errlen);   \
		if (r_)                         \
			return r_;              \
	} while (0)

int gradnic_abi(void) { return GRADNIC_ABI; }

const char *gradnic_version(void)
{
	static _Atomic(const char *) version;
	const char *v = atomic_load(&version);
	if (v)
		return v;
	if (atomic_load(&forked))
		return "unknown after a fork";
	v = gradnicGoVersion();
	atomic_store(&version, v);
	return v;
}

int gradnic_open(const char *path, const gradnic_options *o, gradnic_nic *nic, char *err, size_t errlen)
{
	ENTER(err, errlen);
	return gradnicGoOpen((char *)path, (gradnic_options *)o, nic, err, errlen);
}

int gradnic_close(gradnic_nic nic, int wait, char *err, size_t errlen)
{
	ENTER(err, errlen);
	return gradnicGoClose(nic, wait, err, errlen);
}

int gradnic_alloc(gradnic_nic nic, uint64_t count, float **p, char *err, size_t errlen)
{
	ENTER(err, errlen);
	return gradnicGoAlloc(nic, count, p, err, errlen);
}

int gradnic_free(gradnic_nic nic, float *p, char *err, size_t errlen)
{
	ENTER(err, errlen);
	return gradnicGoFree(nic, p, err, errlen);
}

int gradnic_start(gradnic_nic nic, const gradnic_request *r, gradnic_op *op, char *err, size_t errlen)
{
	ENTER(err, errlen);
	return gradnicGoStart(nic, (gradnic_request *)r, op, err, errlen);
}

int gradnic_wait(gradnic_op op, int64_t timeout_ms, gradnic_stats *stats, char *err, size_t errlen)
{
	ENTER(err, errlen);
	return gradnicGoWait(op, timeout_ms, stats, err, errlen);
}

int gradnic_all_reduce(gradnic_nic nic, const gradnic_request *r, gradnic_stats *stats, char *err, size_t errlen)
{
	gradnic_op op = 0;
	int e = gradnic_start(nic, r, &op, err, errlen);
	return e ? e : gradnic_wait(op, -1, stats, err, errlen);
}

int gradnic_status(gradnic_nic nic, gradnic_status_t *status, char *err, size_t errlen)
{
	ENTER(err, errlen);
	return gradnicGoStatus(nic, status, err, errlen);
}

int gradnic_reform(gradnic_nic nic, const uint16_t *nodes, size_t count, char *err, size_t errlen)
{
	ENTER(err, errlen);
	return gradnicGoReform(nic, (uint16_t *)nodes, count, err, errlen);
}
