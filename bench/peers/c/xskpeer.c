//go:build ignore

// SPDX-License-Identifier: Apache-2.0
//
// xskpeer: the yardstick in C. The least that an AF_XDP program can do with a frame: receive and drop, or swap the
// MAC addresses and send it back. No library; one socket, one queue, one thread that spins.
//
//   xskpeer IFNAME QUEUE drop|reflect CPU    with the XSKMAP of the attached program as file descriptor 3
//
// Prints "ready", runs until standard input ends, then prints one JSON line with its counts.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef XDP_MAX_TX_SKB_BUDGET
#define XDP_MAX_TX_SKB_BUDGET 9
#endif

enum { FRAMES = 8192, CHUNK = 2048, FILL = 4096, RX = 2048, TX = 2048, COMP = 2048, BATCH = 64 };

struct ring {
	uint32_t *producer, *consumer, *flags;
	void *descs;
	uint32_t mask, size;
};

static void die(const char *what)
{
	fprintf(stderr, "xskpeer: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct ring map_ring(int fd, struct xdp_ring_offset *off, uint32_t size, size_t entry, uint64_t page)
{
	char *m = mmap(NULL, off->desc + size * entry, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, page);

	if (m == MAP_FAILED)
		die("map a ring");
	return (struct ring){ (uint32_t *)(m + off->producer), (uint32_t *)(m + off->consumer),
			      (uint32_t *)(m + off->flags), m + off->desc, size - 1, size };
}

static uint32_t acquire(uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static void release(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: xskpeer IFNAME QUEUE drop|reflect CPU\n");
		return 2;
	}
	int reflect = !strcmp(argv[3], "reflect");
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(atoi(argv[4]), &set);
	if (sched_setaffinity(0, sizeof set, &set))
		die("pin to the CPU");

	int fd = socket(AF_XDP, SOCK_RAW, 0);
	if (fd < 0)
		die("open the socket");
	char *area = mmap(NULL, (size_t)FRAMES * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (area == MAP_FAILED)
		die("map the UMEM");
	struct xdp_umem_reg reg = { .addr = (uintptr_t)area, .len = (uint64_t)FRAMES * CHUNK, .chunk_size = CHUNK };
	if (setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &reg, sizeof reg))
		die("register the UMEM");
	int sizes[] = { XDP_UMEM_FILL_RING, FILL, XDP_UMEM_COMPLETION_RING, COMP, XDP_RX_RING, RX, XDP_TX_RING, TX };
	for (int i = 0; i < 8; i += 2)
		if (setsockopt(fd, SOL_XDP, sizes[i], &sizes[i + 1], sizeof(int)))
			die("size a ring");
	int budget = 256;
	setsockopt(fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget, sizeof budget); /* newer kernels only */

	struct xdp_mmap_offsets off;
	socklen_t len = sizeof off;
	if (getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &off, &len))
		die("ask for the ring offsets");
	struct ring fill = map_ring(fd, &off.fr, FILL, 8, XDP_UMEM_PGOFF_FILL_RING);
	struct ring comp = map_ring(fd, &off.cr, COMP, 8, XDP_UMEM_PGOFF_COMPLETION_RING);
	struct ring rx = map_ring(fd, &off.rx, RX, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING);
	struct ring tx = map_ring(fd, &off.tx, TX, sizeof(struct xdp_desc), XDP_PGOFF_TX_RING);

	struct sockaddr_xdp sa = { .sxdp_family = AF_XDP, .sxdp_flags = XDP_COPY | XDP_USE_NEED_WAKEUP,
				   .sxdp_ifindex = if_nametoindex(argv[1]), .sxdp_queue_id = atoi(argv[2]) };
	int bound = -1;
	for (int i = 0; i < 2000 && bound; i++) {
		bound = bind(fd, (struct sockaddr *)&sa, sizeof sa);
		if (bound && errno != EBUSY)
			die("bind");
		if (bound)
			usleep(1000);
	}
	if (bound)
		die("bind");
	uint32_t key = atoi(argv[2]), value = fd;
	union bpf_attr attr;
	memset(&attr, 0, sizeof attr);
	attr.map_fd = 3;
	attr.key = (uintptr_t)&key;
	attr.value = (uintptr_t)&value;
	if (syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &attr, sizeof attr))
		die("enter the socket into the XSKMAP");

	uint32_t fp = 0;
	for (; fp < FILL; fp++)
		((uint64_t *)fill.descs)[fp & fill.mask] = (uint64_t)fp * CHUNK;
	release(fill.producer, fp);

	fcntl(0, F_SETFL, O_NONBLOCK);
	printf("ready\n");
	fflush(stdout);

	uint64_t received = 0, returned = 0, lost = 0, spare[FRAMES], spares = 0;
	uint32_t rc = 0, tp = 0, cc = 0, idle = 0;

	for (uint64_t i = FILL; i < FRAMES; i++)
		spare[spares++] = i * CHUNK;
	/* When transmit is behind, frames wait in no queue of ours: they are dropped and counted. */
	for (;;) {
		uint32_t n = acquire(rx.producer) - rc;

		if (reflect) {
			uint32_t done = acquire(comp.producer) - cc;

			for (uint32_t i = 0; i < done; i++)
				spare[spares++] = ((uint64_t *)comp.descs)[cc++ & comp.mask];
			if (done)
				release(comp.consumer, cc);
		}
		if (!n) {
			if (reflect && tp != cc && (*tx.flags & XDP_RING_NEED_WAKEUP))
				sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
			if (++idle % 4096 == 0) {
				char c;
				if (read(0, &c, 1) == 0)
					break;
			}
		}
		if (n > BATCH)
			n = BATCH;
		for (uint32_t i = 0; i < n; i++) {
			struct xdp_desc *d = &((struct xdp_desc *)rx.descs)[rc++ & rx.mask];

			if (reflect && tp - cc < TX) {
				uint8_t *p = (uint8_t *)area + d->addr, mac[6];

				memcpy(mac, p, 6);
				memcpy(p, p + 6, 6);
				memcpy(p + 6, mac, 6);
				((struct xdp_desc *)tx.descs)[tp++ & tx.mask] = (struct xdp_desc){ d->addr, d->len, 0 };
				returned++;
			} else {
				lost += reflect;
				spare[spares++] = d->addr & ~(uint64_t)(CHUNK - 1);
			}
		}
		if (n) {
			received += n;
			release(rx.consumer, rc);
			if (reflect) {
				release(tx.producer, tp);
				if (*tx.flags & XDP_RING_NEED_WAKEUP)
					sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
			}
		}
		uint32_t room = FILL - (fp - acquire(fill.consumer));
		uint32_t give = spares < room ? spares : room;
		if (give) {
			for (uint32_t i = 0; i < give; i++)
				((uint64_t *)fill.descs)[fp++ & fill.mask] = spare[--spares] & ~(uint64_t)(CHUNK - 1);
			release(fill.producer, fp);
		}
		if (*fill.flags & XDP_RING_NEED_WAKEUP)
			recvfrom(fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
	}
	printf("{\"received\":%llu,\"returned\":%llu,\"lost\":%llu}\n", (unsigned long long)received,
	       (unsigned long long)returned, (unsigned long long)lost);
	return 0;
}
