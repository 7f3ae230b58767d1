/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* At a NIC's egress: names the class that the packet belongs to, and HTB with the handle MAJOR obeys. Drops nothing. */
#include "packet.h"

SEC("tc")
int classify(struct __sk_buff *skb)
{
	__u32 before = skb->priority, minor = skb->tc_index, first = 0, after;
	struct settings *set = bpf_map_lookup_elem(&settings, &first);
	__u32 class = 0;
	if (minor && set && set->marks) {
		skb->tc_index = 0; /* those after us may read it */
		class = MAJOR << 16 | minor; /* the veth it came by, before the address that it says */
	}
	if (!class)
		class = class_by_address(skb, SOURCE);
	if (!class)
		class = class_by_cgroup(skb);
	/* Whoever has CAP_NET_RAW may set SO_PRIORITY to another's class: this major is ours alone to set. */
	after = class ? class : before >> 16 == MAJOR ? 0 : before;
	if (after != before)
		skb->priority = after;
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
