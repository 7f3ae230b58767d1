/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* At the host's end of a pod's veth, or of the pods' bridge, where what pods send comes in: remembers the class in
 * skb->tc_index. Nothing on the way to the NIC changes that, where a masquerade or a tunnel hides the pod's address.
 * Others' programs may (Cilium keeps flags in it): this one must not hang where theirs do. */
#include "packet.h"

SEC("tc")
int mark(struct __sk_buff *skb)
{
	__u32 class = class_by_interface(skb);
	if (!class)
		class = class_by_address(skb, SOURCE);
	/* A pod without a class gets 0: what comes out of its namespace may hold anything. */
	skb->tc_index = class & 0xffff;
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
