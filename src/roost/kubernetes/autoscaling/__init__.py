"""What Roost and autoscalers of nodes say to each other: who needs nodes, and which must stay."""
