# Machines of AWS with a disk each, in subnets that exist. No account, network or user is created.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
    random = {
      source  = "hashicorp/random"
      version = "~> 3.6"
    }
  }
}

provider "aws" {
  region = var.region
}

resource "random_password" "cluster_secret" {
  length  = 48
  special = false
}

resource "random_password" "admin" {
  length  = 32
  special = false
}

locals {
  # Nodes take turns in the subnets, so each zone has one before any has two.
  subnets = [for index in range(var.nodes) : var.subnet_ids[index % length(var.subnet_ids)]]
  # How the first further disk is named on machines of the Nitro generation.
  device = "/dev/nvme1n1"
  ports  = { kafka = 9092, http = 8080, registry = 8081, grpc = 9000 }
}

data "aws_subnet" "of_node" {
  count = var.nodes
  id    = local.subnets[count.index]
}

resource "aws_security_group" "nodes" {
  name_prefix = "${var.name}-"
  description = "Nodes of GoQueue"
  vpc_id      = data.aws_subnet.of_node[0].vpc_id
  tags        = merge(var.tags, { Name = var.name })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "between_nodes" {
  security_group_id            = aws_security_group.nodes.id
  referenced_security_group_id = aws_security_group.nodes.id
  ip_protocol                  = "tcp"
  from_port                    = 7000
  to_port                      = 7000
  description                  = "Nodes among each other"
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each = {
    for pair in setproduct(keys(local.ports), var.client_cidrs) : "${pair[0]} from ${pair[1]}" => pair
  }
  security_group_id = aws_security_group.nodes.id
  cidr_ipv4         = each.value[1]
  ip_protocol       = "tcp"
  from_port         = local.ports[each.value[0]]
  to_port           = local.ports[each.value[0]]
  description       = "Clients: ${each.key}"
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  for_each          = toset(var.ssh_cidrs)
  security_group_id = aws_security_group.nodes.id
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
  description       = "Operators"
}

resource "aws_vpc_security_group_egress_rule" "all" {
  security_group_id = aws_security_group.nodes.id
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
  description       = "Packages, and replies"
}

# Made before the machines, so that each knows the addresses of all.
resource "aws_network_interface" "node" {
  count           = var.nodes
  subnet_id       = local.subnets[count.index]
  security_groups = [aws_security_group.nodes.id]
  tags            = merge(var.tags, { Name = "${var.name}-${count.index + 1}" })
}

module "configuration" {
  source    = "./configuration"
  addresses = [for one in aws_network_interface.node : one.private_ip]
  racks     = [for one in data.aws_subnet.of_node : one.availability_zone]
  device    = local.device
  package   = var.package
  security  = var.security
  settings  = var.settings
  secrets = merge(var.secrets, {
    GOQUEUE_CLUSTER_SECRET = random_password.cluster_secret.result
    GOQUEUE_INITIAL_ADMIN  = "admin:${random_password.admin.result}"
  })
}

resource "aws_ebs_volume" "data" {
  count             = var.nodes
  availability_zone = data.aws_subnet.of_node[count.index].availability_zone
  size              = var.disk_gib
  type              = "gp3"
  encrypted         = true
  tags              = merge(var.tags, { Name = "${var.name}-${count.index + 1}" })
}

resource "aws_instance" "node" {
  count         = var.nodes
  ami           = var.ami
  instance_type = var.instance_type
  key_name      = var.ssh_key
  user_data     = module.configuration.user_data[count.index]
  tags          = merge(var.tags, { Name = "${var.name}-${count.index + 1}" })

  primary_network_interface {
    network_interface_id = aws_network_interface.node[count.index].id
  }

  metadata_options {
    http_tokens = "required"
  }

  root_block_device {
    encrypted = true
  }

  lifecycle {
    # Settings of running machines are changed on them; a new script would replace all at once.
    ignore_changes = [user_data, ami]
  }
}

resource "aws_volume_attachment" "data" {
  count       = var.nodes
  device_name = "/dev/sdf"
  volume_id   = aws_ebs_volume.data[count.index].id
  instance_id = aws_instance.node[count.index].id
}
