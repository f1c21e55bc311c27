// One node's process: node SOCKET NUMBER NODES. Prints what it has checked, and "gone" when the NIC was taken away.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradnic.h"

static char err[256];

#define CHECK(what)                                                                \
	do {                                                                       \
		if (!(what)) {                                                     \
			printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #what, err); \
			exit(1);                                                   \
		}                                                                  \
	} while (0)
#define E err, sizeof err

// Whole numbers: their sums are exact in any order.
static float value(int node, int i) { return (float)((i * 7 + node * 13) % 101 - 50); }

static float sum(int nodes, int i)
{
	float s = 0;
	for (int n = 0; n < nodes; n++)
		s += value(n, i);
	return s;
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	int node = atoi(argv[2]), nodes = atoi(argv[3]);
	enum { N = 20000 };
	gradnic_options o = {.arena = 1 << 20, .piece = 6000, .timeout_ms = 5000};
	gradnic_nic nic = 0;
	gradnic_stats st;
	CHECK(gradnic_abi() == GRADNIC_ABI && strlen(gradnic_version()) > 0);
	CHECK(gradnic_open("/nowhere/at/all", &o, &nic, E) == GRADNIC_EOTHER && strstr(err, "connect"));
	CHECK(gradnic_open(NULL, &o, &nic, E) == GRADNIC_EINVAL);
	CHECK(gradnic_open(argv[1], &o, &nic, E) == GRADNIC_OK);

	// A barrier, then memory of the arena, in place.
	gradnic_request r = {.codec = "none"};
	CHECK(gradnic_all_reduce(nic, &r, NULL, E) == GRADNIC_OK);
	float *a;
	CHECK(gradnic_alloc(nic, N, &a, E) == GRADNIC_OK && (size_t)a % 64 == 0);
	for (int i = 0; i < N; i++)
		a[i] = value(node, i);
	r.data = a;
	r.count = N;
	CHECK(gradnic_all_reduce(nic, &r, &st, E) == GRADNIC_OK && st.blocks > 0 && st.elapsed_ns > 0);
	for (int i = 0; i < N; i++)
		CHECK(a[i] == sum(nodes, i));

	// Many at once from the heap, every second with weights.
	enum { K = 12 };
	float *data[K], *weights[K];
	gradnic_op op[K];
	for (int k = 0; k < K; k++) {
		data[k] = malloc(N * sizeof(float));
		weights[k] = malloc(N * sizeof(float));
		for (int i = 0; i < N; i++) {
			data[k][i] = value(node, i + k);
			weights[k][i] = (float)(i % 10);
		}
		gradnic_request q = {.data = data[k], .count = N, .weights = k % 2 ? weights[k] : NULL, .learning_rate = 0.5f, .codec = "none"};
		CHECK(gradnic_start(nic, &q, &op[k], E) == GRADNIC_OK);
	}
	for (int k = 0; k < K; k++) {
		int e;
		while ((e = gradnic_wait(op[k], 1, &st, E)) == GRADNIC_TIMEOUT)
			;
		CHECK(e == GRADNIC_OK);
		for (int i = 0; i < N; i++) {
			float s = sum(nodes, i + k), w = (float)(i % 10) - 0.5f * s;
			CHECK(data[k][i] == (k % 2 ? w : s) && weights[k][i] == (k % 2 ? w : (float)(i % 10)));
		}
		CHECK(gradnic_wait(op[k], 0, NULL, E) == GRADNIC_ECLOSED);
		free(data[k]);
		free(weights[k]);
	}

	// What cannot be.
	gradnic_op none;
	float *p;
	r.codec = "no such codec";
	CHECK(gradnic_all_reduce(nic, &r, NULL, E) == GRADNIC_EREQUEST && strstr(err, "no such codec"));
	r.codec = "a name that is far too long for any codec";
	CHECK(gradnic_start(nic, &r, &none, E) == GRADNIC_EOTHER);
	r.codec = NULL;
	r.data = a;
	r.count = 10;
	r.weights = a + 9;
	CHECK(gradnic_start(nic, &r, &none, E) == GRADNIC_EINVAL && strstr(err, "overlap"));
	r.weights = NULL;
	r.deadline_ms = -1;
	CHECK(gradnic_start(nic, &r, &none, E) == GRADNIC_EINVAL && strstr(err, "a deadline of -1 ms"));
	r.deadline_ms = 0;
	r.data = NULL;
	CHECK(gradnic_start(nic, &r, &none, E) == GRADNIC_EINVAL);
	r.data = (float *)((char *)a + 1);
	CHECK(gradnic_start(nic, &r, &none, E) == GRADNIC_EINVAL);
	CHECK(gradnic_alloc(nic, 1 << 30, &p, E) == GRADNIC_ENOMEM);
	CHECK(gradnic_alloc(nic, 0, &p, E) == GRADNIC_EINVAL);
	CHECK(gradnic_free(nic, a + 1, E) == GRADNIC_EINVAL && strlen(err) > 0);
	CHECK(gradnic_start(nic + 77, &r, &none, NULL, 0) == GRADNIC_ECLOSED);
	CHECK(gradnic_status(nic, NULL, E) == GRADNIC_EINVAL);

	gradnic_status_t status;
	CHECK(gradnic_status(nic, &status, E) == GRADNIC_OK);
	CHECK(status.node == (uint32_t)node && status.count == (uint32_t)nodes && status.nodes[1] == 1 && !strcmp(status.phase, "formed"));
	uint16_t wrong[] = {63};
	CHECK(gradnic_reform(nic, wrong, 1, E) == GRADNIC_EOTHER && strstr(err, "63"));

	// A child is refused at once, and has let go of the connection.
	pid_t child = fork();
	if (child == 0) {
		alarm(5); // it would wait for ever
		int e = gradnic_status(nic, &status, E);
		int f = gradnic_open(argv[1], &o, &nic, NULL, 0);
		_exit(e == GRADNIC_EFORK && f == GRADNIC_EFORK && strstr(err, "forked") && gradnic_version() ? 0 : 1);
	}
	int how = 0;
	CHECK(waitpid(child, &how, 0) == child && how == 0);
	CHECK(gradnic_status(nic, &status, E) == GRADNIC_OK);

	// The NIC is taken away when this was read.
	printf("checked\n");
	fflush(stdout);
	r.data = a;
	r.codec = "none";
	while (gradnic_all_reduce(nic, &r, NULL, E) == GRADNIC_OK)
		;
	CHECK(gradnic_all_reduce(nic, &r, NULL, E) == GRADNIC_EGONE && gradnic_status(nic, &status, E) == GRADNIC_EGONE);
	CHECK(gradnic_close(nic, 1, E) == GRADNIC_OK && gradnic_close(nic, 0, E) == GRADNIC_OK);
	a[0] = 1; // still there
	CHECK(gradnic_status(nic, &status, E) == GRADNIC_ECLOSED);
	CHECK(gradnic_free(nic, a, E) == GRADNIC_OK && gradnic_free(nic, a, E) == GRADNIC_ECLOSED);
	printf("gone\n");
	return 0;
}
